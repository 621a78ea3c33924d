"""A Kubernetes API server at the level of HTTP: lists, watches, patches and deletions, and its bad days.

with FakeKubeApi() as kube:
    pod = kube.put(pod_manifest("a", node="node1", limits={"gaia.io/vgpu-memory": "16"}))
    api = await Api.connect(kube.kubeconfig(tmp_path / "kubeconfig"))
    kube.away(); kube.back(); kube.compact(); kube.drop(mid_line=True)
"""

from tests.support.kubeapi.manifests import pod_manifest, status_of
from tests.support.kubeapi.server import FakeKubeApi
from tests.support.kubeapi.waiting import until

__all__ = ["FakeKubeApi", "pod_manifest", "status_of", "until"]
