"""What kube-scheduler sends an extender and reads from it (``k8s.io/kube-scheduler/extender/v1``).

The Go types have no JSON names, so the names on the wire are Go's: ``Pod``, ``NodeNames``, ``FailedNodes``.
Go itself reads any case, and so do we. Whatever is odd in a request is left out where one can do without,
else it is one sentence; nothing here raises anything but `Unreadable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gaia_plugin.kube.pods import DOMAIN, Pod, Pods

LONGEST_ERROR: Final = 1000
"""Characters of a sentence that goes into an event."""


class Unreadable(Exception):
    """A request that says nothing that could be answered; the message is the answer's ``Error``."""


class Offer(msgspec.Struct, frozen=True):
    """What filter and prioritize get: a pod, and nodes by name or (`whole`) as objects."""

    pod: Pod
    names: list[str]
    whole: dict[str, msgspec.Raw] | None = None


class BindingArgs(msgspec.Struct, frozen=True):
    """What bind gets."""

    name: str
    namespace: str
    uid: str
    node: str


class Victims(msgspec.Struct, frozen=True):
    """The pods that kube-scheduler would evict from a node, by UID."""

    uids: tuple[str, ...]
    violations: int = 0


class PreemptionArgs(msgspec.Struct, frozen=True):
    """What preempt gets."""

    pod: Pod
    victims: dict[str, Victims]


class _Args(msgspec.Struct, frozen=True):
    pod: msgspec.Raw = msgspec.field(name="Pod")
    names: list[str] | None = msgspec.field(default=None, name="NodeNames")
    nodes: msgspec.Raw | None = msgspec.field(default=None, name="Nodes")


_ARGS: Final = msgspec.json.Decoder(_Args)
_POD: Final = msgspec.json.Decoder(Pod)


class _Bare(msgspec.Struct, frozen=True):
    name: str


class _Named(msgspec.Struct, frozen=True):
    metadata: _Bare


_NAMED: Final = msgspec.json.Decoder(_Named)


def read_offer(body: bytes, domain: str = DOMAIN) -> Offer:
    """Return what filter or prioritize is asked.

    Raises:
        Unreadable: there is no pod in it.
    """
    try:
        args = _ARGS.decode(body)
        pod = _POD.decode(args.pod)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _slowly(body, domain)
    if args.names is None and args.nodes is None:
        return _slowly(body, domain)  # perhaps by another spelling
    if args.names is not None:
        return Offer(_trimmed(pod, domain), args.names)
    return _with_objects(_trimmed(pod, domain), args.nodes)


def read_binding(body: bytes) -> BindingArgs:
    """Return what bind is asked.

    Raises:
        Unreadable: it does not say which pod or which node.
    """
    found = _object(body)
    texts = [_text(found.get(key)) for key in ("podname", "podnamespace", "poduid", "node")]
    name, namespace, uid, node = texts
    if not (name and namespace and node):
        raise Unreadable("the request names no pod or no node.")
    return BindingArgs(name, namespace, uid, node)


def read_preemption(body: bytes, domain: str = DOMAIN) -> PreemptionArgs:
    """Return what preempt is asked; victims as UIDs, in whichever of the two forms they come.

    Raises:
        Unreadable: there is no pod in it.
    """
    found = _object(body)
    pod = _pod(found.get("pod"), domain)
    by_node = found.get("nodenametometavictims") or found.get("nodenametovictims") or {}
    victims: dict[str, Victims] = {}
    for name, told in by_node.items() if isinstance(by_node, dict) else ():
        lowered = _lowered(told)
        pods = lowered.get("pods")
        uids = tuple(_uid_of(each) for each in pods) if isinstance(pods, list) else ()
        violations = lowered.get("numpdbviolations")
        victims[str(name)] = Victims(
            tuple(uid for uid in uids if uid), violations if isinstance(violations, int) else 0
        )
    return PreemptionArgs(pod, victims)


def filtered(
    names: Sequence[str],
    failed: Mapping[str, str],
    hopeless: Mapping[str, str],
    *,
    whole: Mapping[str, msgspec.Raw] | None = None,
    error: str = "",
) -> bytes:
    """Return the body of an ``ExtenderFilterResult``."""
    nodes = None
    if whole is not None:
        nodes = {"metadata": {}, "items": [whole[name] for name in names if name in whole]}
    return msgspec.json.encode(
        {
            "Nodes": nodes,
            "NodeNames": None if error else names,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": hopeless,
            "Error": error[:LONGEST_ERROR],
        }
    )


def prioritized(scores: Mapping[str, int]) -> bytes:
    """Return the body of a ``HostPriorityList``."""
    return msgspec.json.encode([{"Host": name, "Score": score} for name, score in scores.items()])


def bound(error: str = "") -> bytes:
    """Return the body of an ``ExtenderBindingResult``."""
    return msgspec.json.encode({"Error": error[:LONGEST_ERROR]})


def preempted(victims: Mapping[str, Victims]) -> bytes:
    """Return the body of an ``ExtenderPreemptionResult``."""
    return msgspec.json.encode(
        {
            "NodeNameToMetaVictims": {
                name: {
                    "Pods": [{"UID": uid} for uid in each.uids],
                    "NumPDBViolations": each.violations,
                }
                for name, each in victims.items()
            }
        }
    )


# What comes in another shape than kube-scheduler's own


def _slowly(body: bytes, domain: str) -> Offer:
    found = _object(body)
    pod = _pod(found.get("pod"), domain)
    names = found.get("nodenames")
    if isinstance(names, list):
        return Offer(pod, [name for name in names if isinstance(name, str)])
    nodes = found.get("nodes")
    return _with_objects(pod, msgspec.Raw(msgspec.json.encode(nodes)) if nodes is not None else None)


def _with_objects(pod: Pod, nodes: msgspec.Raw | None) -> Offer:
    """Return an offer of whole nodes, as without ``nodeCacheCapable``; none at all is an empty one."""
    whole: dict[str, msgspec.Raw] = {}
    items = _lowered(_untyped(nodes)).get("items") if nodes is not None else None
    for item in items if isinstance(items, list) else ():
        raw = msgspec.json.encode(item)
        try:
            whole[_NAMED.decode(raw).metadata.name] = msgspec.Raw(raw)
        except msgspec.DecodeError:
            continue
    return Offer(pod, list(whole), whole if nodes is not None else None)


def _pod(value: Any, domain: str) -> Pod:
    if not isinstance(value, dict):
        raise Unreadable("the request has no pod in it.")
    try:
        return _trimmed(msgspec.convert(_straightened(value), Pod), domain)
    except msgspec.ValidationError as error:
        raise Unreadable(f"the pod cannot be read: {error}.") from error


def _straightened(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod whose quantities are text, as the API server writes them; odd parts are left out."""
    metadata = pod.get("metadata") if isinstance(pod.get("metadata"), dict) else {}
    spec = pod.get("spec") if isinstance(pod.get("spec"), dict) else {}
    assert isinstance(metadata, dict)
    assert isinstance(spec, dict)
    clean: dict[str, Any] = {
        "metadata": {
            "name": _text(metadata.get("name")),
            "namespace": _text(metadata.get("namespace")),
            "uid": _text(metadata.get("uid")),
            "annotations": _texts(metadata.get("annotations")),
        },
        "spec": {},
    }
    for key in ("containers", "initContainers"):
        each = spec.get(key)
        if isinstance(each, list):
            clean["spec"][key] = [_container(one) for one in each if isinstance(one, dict)]
    return clean


def _container(value: dict[str, Any]) -> dict[str, Any]:
    found = value.get("resources")
    resources = found if isinstance(found, dict) else {}
    clean: dict[str, Any] = {
        "name": _text(value.get("name")),
        "resources": {key: _texts(resources.get(key)) for key in ("limits", "requests")},
    }
    if isinstance(value.get("restartPolicy"), str):
        clean["restartPolicy"] = value["restartPolicy"]
    return clean


def _texts(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    return {str(key): _text(each) for key, each in value.items()}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _trimmed(pod: Pod, domain: str) -> Pod:
    return Pods(domain).keep(pod) or pod


def _untyped(raw: bytes | msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"the request is no JSON: {error}.") from error


def _object(body: bytes) -> dict[str, Any]:
    found = _untyped(body)
    if not isinstance(found, dict):
        raise Unreadable("the request is no object.")
    return _lowered(found)


def _lowered(value: Any) -> dict[str, Any]:
    """Return an object by names in lower case; the exact Go name wins over another spelling of it."""
    if not isinstance(value, dict):
        return {}
    found: dict[str, Any] = {}
    for key, each in sorted(value.items(), key=lambda pair: pair[0][:1].isupper()):
        found[key.lower()] = each
    return found


def _uid_of(victim: Any) -> str:
    lowered = _lowered(victim)
    return _text(lowered.get("uid")) or _text(_lowered(lowered.get("metadata")).get("uid"))
