"""Where the API server is and who we are to it: a kubeconfig, or the service account of a pod."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import load_incluster_config

from gaia_plugin.errors import Unusable

_SEVERAL = os.pathsep


async def find_server(
    kubeconfig: Path | None = None,
    context: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Configuration:
    """Return how to reach the API server.

    The first of these that there is: `kubeconfig`, the files that ``KUBECONFIG`` names, the service
    account of the pod that this process runs in, ``~/.kube/config``.

    Raises:
        Unusable: there is none of them, or it cannot be used; the sentence says what to do.
    """
    configuration = Configuration()
    files = str(kubeconfig) if kubeconfig is not None else environment.get("KUBECONFIG", "")
    if not files and environment.get("KUBERNETES_SERVICE_HOST"):
        try:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError) as error:
            raise Unusable(
                "This pod has no service account that reaches the Kubernetes API server "
                f"({str(error).rstrip('.')}): set automountServiceAccountToken, or name a kubeconfig."
            ) from error
        return configuration
    files = files or str(Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config")
    if not any(Path(one).expanduser().is_file() for one in files.split(_SEVERAL) if one):
        raise Unusable(
            f"There is no kubeconfig at {files} and this is no pod of a cluster: "
            "set KUBECONFIG to a file that says where the Kubernetes API server is."
        )
    try:
        await load_kube_config(  # type: ignore[no-untyped-call]
            config_file=files, context=context, client_configuration=configuration, persist_config=False
        )
    except Exception as error:  # YAML that is none, a key missing, a file gone: each fails in its own way
        raise Unusable(f"The kubeconfig {files} cannot be used: {error}") from error
    return configuration
