"""Rows with a target, for the Spark benchmarks and the pressure test."""

from dataclasses import dataclass

from bench.servers import TopicsServer, need, topics_server

__all__ = ["HEADER", "Row", "TopicsServer", "at_least", "at_most", "need", "topics_server"]


@dataclass
class Row:
    """One measured claim: what, how much, against what, and whether the target was met."""

    what: str
    value: str
    against: str
    ratio: float
    target: str
    met: bool

    def line(self) -> str:
        return f"| {self.what} | {self.value} | {self.against} | {self.ratio:.2f} | {self.target} | {'yes' if self.met else 'NO'} |"


HEADER = "| what | measured | against | ratio | target | met |\n|---|---|---|---|---|---|"


def at_least(what: str, value: float, against: float, target: float, unit: str, peer: str) -> Row:
    ratio = value / against
    return Row(what, f"{value:,.0f} {unit}", f"{against:,.0f} {unit} ({peer})", ratio, f">= {target}", ratio >= target)


def at_most(what: str, value: float, bound: float, unit: str) -> Row:
    return Row(what, f"{value:,.2f} {unit}", f"{bound:,.2f} {unit}", value / bound, "<= 1", value <= bound)
