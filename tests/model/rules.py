"""The rules of the protocol, each a switch: what is left out must lead the search to a counterexample."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace


def _rule(sentence: str) -> bool:
    """Declare a rule that is kept unless it is switched off."""
    kept: bool = field(default=True, metadata={"rule": sentence})
    return kept


@dataclass(frozen=True)
class Rules:
    """Every rule, in the order in which a newcomer would ask for them."""

    # -- the ledger
    capacity_counts_held: bool = _rule("Room on a card is what is not held; what is in force is less.")
    held_before_target: bool = _rule("A grow is booked first (held), before anybody is told of it.")
    put_before_commit: bool = _rule("The cluster's object says so before a grow is in force.")
    commit_before_page: bool = _rule("A grow is committed before the page says it.")
    hold_keeps_held: bool = _rule("A grow books the larger of what is held and what is wanted.")
    undo_by_shrink_rule: bool = _rule("What a grow booked in vain goes back by the rule of a shrink.")
    held_waits_for_use: bool = _rule("A shrink puts the target in force; what is held falls later.")
    settle_spares_grow: bool = _rule("What falls never falls below what a grow under way has booked.")
    # -- how what is held falls
    store_before_claim: bool = _rule("The lower limit is in the page before the announced sum is read.")
    fence_before_pending: bool = _rule("A full fence stands between that store and that sum.")
    announce_before_limit: bool = _rule("A process announces an allocation before it reads its limit.")
    pending_counts: bool = _rule("What is announced counts as used.")
    dead_do_not_count: bool = _rule("What a process announced that is known to be dead does not count.")
    sum_before_readings: bool = _rule("The announced sum is read before the driver's readings begin.")
    two_readings: bool = _rule("Of two readings the second counts: the first may be an old sample.")
    no_figure_is_not_zero: bool = _rule(
        "Where the driver has no figure, only the end of all processes is one."
    )
    generation_checked: bool = _rule("A new target makes every measurement begun before it worthless.")
    # -- release
    release_writes_page: bool = _rule("A release writes 'nothing' into the page.")
    remove_at_zero: bool = _rule("A slot is struck out only when it holds nothing.")
    only_the_end_releases: bool = _rule("That no process is seen releases nothing.")
    release_asks_live: bool = _rule("A pod that is merely not seen is asked for at the API server.")
    # -- a liar
    driver_is_truth: bool = _rule("What is in use is what the driver says, not what the usage page says.")
    members_from_outside: bool = _rule("Whose a process is, its container says, not the usage page.")
    raise_held: bool = _rule("What the driver shows above what is held is booked at once.")
    raise_voids_claims: bool = _rule("A measurement begun before such a booking cannot take it back.")
    stop_overbooker: bool = _rule("Who overbooks a card is stopped.")
    # -- start
    uid_decides: bool = _rule("A slot belongs to a UID, never to a name.")
    names_never_recur: bool = _rule("A name in a CDI specification is never used twice.")
    recover_stores_target: bool = _rule("After a start, every page is made to say the target.")
    recover_takes_back: bool = _rule("After a start, slots whose making was not finished are struck out.")
    one_agent: bool = _rule("A second agent does nothing until the first is gone.")
    delete_carries_uid: bool = _rule("A pod is deleted by its UID.")
    sweep_takes_back: bool = _rule("A start that nobody finishes is struck out when its pod has ended.")
    reserved_is_not_resized: bool = _rule("A slot whose making is not finished takes no other size.")
    # -- the object of both sides
    free_counts_status: bool = _rule("What a slot holds counts by the status where the status has it.")
    free_counts_reservations: bool = _rule("What the status does not have counts by its reservation.")
    grow_counts_reservations: bool = _rule("A grow asks for room beside the reservations it has read.")
    status_carries_version: bool = _rule("A status is written over the version that was read, or not at all.")
    status_after_get: bool = _rule("A status is built after the read whose version it carries.")
    status_rebuilt: bool = _rule("After a conflict the whole status is built again.")
    status_is_new: bool = _rule("Every status says something new, so that each write makes a new version.")
    told_was_built: bool = _rule("A write tells of those only that were booked before its status was built.")
    commits_ones_own: bool = _rule("A grow commits what it has booked itself, not what another has since.")
    vain_counts: bool = _rule(
        "What a grow finds booked in vain is asked room for again, not its own already."
    )
    blank_offers_nothing: bool = _rule("An object that its agent has not written yet offers nothing.")
    sync_compares: bool = _rule("The status is compared with the ledger again and again.")
    # -- the extender
    reservation_carries_version: bool = _rule(
        "Reservations are written over the version read, or not at all."
    )
    reservation_before_binding: bool = _rule("The reservation is written before the Binding is sent.")
    bind_always_puts: bool = _rule("A bind writes its reservation also when it is there already.")
    reservation_is_new: bool = _rule("A reservation that is written again says something new.")
    touch_is_new: bool = _rule("Writing an unbound pod changes something in it.")
    binding_carries_version: bool = _rule("A Binding carries the version of the pod.")
    version_before_put: bool = _rule("That version was read before the reservation was written.")
    drop_asks_live: bool = _rule("Only a live read shows that a pod does not need its reservation.")
    drop_writes_pod: bool = _rule(
        "Dropping what is unbound writes the pod, so that a Binding under way fails."
    )
    drop_first_version: bool = _rule("The drop carries the version read before the pod was written.")
    drop_when_gone: bool = _rule("The reservation of a pod that is gone is dropped.")

    def without(self, name: str) -> Rules:
        """Return the rules with one left out."""
        return replace(self, **{name: False})


def sentences() -> dict[str, str]:
    """Return what each rule says, by name."""
    return {each.name: each.metadata["rule"] for each in fields(Rules)}
