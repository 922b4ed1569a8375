"""Whatever happens to the handoffs of a job, in whatever order: its books balance."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from shared.ledger.claim import Claim
from shared.ledger.journal import Commit
from shared.ledger.ledger import Ledger
from shared.wire.checkpoints import WorstCase
from shared.wire.events import CancelRequested
from shared.wire.ids import HandoffId
from tests.doubles.jobs import a_job, books, claim, finish, issue, let_lease_run_out, nothing_reserved, replied, verdict, version_of

LIMITS = {"max_turns": 12, "max_tokens": 3_000, "max_usd": 300}
NAMES = ("a.1", "b.1", "c.1", "d.1")
CALLS = st.builds(WorstCase, st.integers(0, 900), st.integers(0, 300), st.integers(0, 120))


class Books(RuleBasedStateMachine):
    """Several handoffs reserve, settle, die, are handed back, dropped and finished in any order."""

    ledger: Ledger

    @initialize()
    def begin(self) -> None:
        self.job_id = a_job(self.ledger, **LIMITS)
        issue(self.ledger, self.job_id, *NAMES)
        self.running: dict[str, Claim] = {}
        self.in_the_air: dict[str, WorstCase] = {}
        self.unsettled: set[str] = set()

    @rule(name=st.sampled_from(NAMES), first=st.none() | CALLS)
    def claim_one(self, name: str, first: WorstCase | None) -> None:
        claimed = claim(self.ledger, self.job_id, name, first=first)
        if claimed.verdict.value in ("granted", "exhausted"):
            assert name not in self.running
            self.running[name] = claimed
            self.unsettled.discard(name)
            if claimed.reserved and first:
                self.in_the_air[name] = first

    @precondition(lambda self: self.running)
    @rule(data=st.data(), worst=CALLS)
    def call(self, data: st.DataObject, worst: WorstCase) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        if name in self.in_the_air:
            return
        self.unsettled.discard(name)
        said = verdict(self.running[name], worst)
        if said == b"ok":
            self.in_the_air[name] = worst
        elif said == b"wait":
            assert self.in_the_air or self.unsettled, "nobody is there to wait for"
        else:  # what this handoff had not settled yet was settled first
            now = books(self.ledger, self.job_id)
            asked = {"max_turns": 1, "max_tokens": worst.input_tokens + worst.output_tokens, "max_usd": worst.microusd or 0}
            spent = {"max_turns": now["turns"], "max_tokens": now["input_tokens"] + now["output_tokens"], "max_usd": now["usd"]}
            assert said.decode() in [limit for limit, most in LIMITS.items() if spent[limit] + asked[limit] > most]

    @precondition(lambda self: self.in_the_air)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.in_the_air)))
        worst = self.in_the_air.pop(name)
        tokens_in, tokens_out, microusd = (
            data.draw(st.integers(0, most)) for most in (worst.input_tokens, worst.output_tokens, worst.microusd or 0)
        )
        self.running[name].reserved = False
        is_final = data.draw(st.booleans())
        if is_final:
            self.unsettled.add(name)  # it goes out with what this handoff does next
        self.running[name].checkpoint(replied(tokens_in, tokens_out, microusd, "end_turn" if is_final else "tool_use"))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), how=st.sampled_from(["die", "release", "finish", "drop"]))
    def end(self, data: st.DataObject, how: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        claimed = self.running.pop(name)
        was_in_the_air = self.in_the_air.pop(name, None) is not None
        if how == "die":
            if was_in_the_air:
                self.unsettled.add(name)
            let_lease_run_out(self.ledger, claimed)
            return
        self.unsettled.discard(name)
        if how == "release":
            claimed.release()
        elif how == "finish":
            assert finish(claimed) is not None
        else:
            events = [CancelRequested()]
            version = version_of(self.ledger, self.job_id)
            self.ledger.journal.commit(Commit(job_id=self.job_id, expected=version, events=events, drop=[claimed.handoff_id]))

    @invariant()
    def nothing_is_overspent_and_nothing_is_negative(self) -> None:
        if not hasattr(self, "job_id"):
            return
        now = books(self.ledger, self.job_id)
        assert all(value >= 0 for value in now.values())
        assert now["turns"] + now["reserved_turns"] <= LIMITS["max_turns"]
        assert now["input_tokens"] + now["output_tokens"] + now["reserved_tokens"] <= LIMITS["max_tokens"]
        assert now["usd"] + now["reserved_usd"] <= LIMITS["max_usd"]
        assert now["cut_calls"] <= now["turns"]
        assert now["cut_tokens"] <= now["input_tokens"] + now["output_tokens"]
        assert now["cut_usd"] <= now["usd"]

    def teardown(self) -> None:
        """When all is over, nothing is reserved."""
        if not hasattr(self, "job_id"):
            return
        version = version_of(self.ledger, self.job_id)
        everything = [HandoffId(name) for name in NAMES]
        self.ledger.journal.commit(Commit(job_id=self.job_id, expected=version, events=[CancelRequested()], drop=everything))
        assert nothing_reserved(self.ledger, self.job_id)


def test_whatever_happens_the_books_balance_and_no_limit_is_passed(ledger: Ledger) -> None:
    class OnThisLedger(Books):
        pass

    OnThisLedger.ledger = ledger
    run_state_machine_as_test(
        OnThisLedger,
        settings=settings(
            max_examples=40, stateful_step_count=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
