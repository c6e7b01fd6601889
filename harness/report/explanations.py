"""Why a result is wrong, and which cases fail, as sentences."""

from __future__ import annotations

from harness import explanations
from harness.explanations import Explanation, FailingCases, Places, Region, Unexplained
from harness.report.verdicts import named_in_message
from harness.verdict import CaseFailed, Evaluation, Rejected

# Elements of a vector, lanes of a warp, the most threads of a block.
TAILS = (4, 32, 1024)

NOTHING_FITS = "none of the usual faults gives this result."


def why(evidence: Evaluation) -> str:
    """The explanation of the case that has one, that which the message is about first; empty where nobody looked."""
    named = named_in_message(evidence)
    failed = [case for case in evidence.cases if isinstance(case, CaseFailed) and case.explanation]
    failed.sort(key=lambda case: (isinstance(case.explanation, Unexplained), case is not named))
    if not failed or failed[0].explanation is None:
        return ""
    text = cause(failed[0].explanation)
    return text if failed[0] is named else f"in '{failed[0].name}', {text}"


def failing(evaluation: Evaluation) -> str:
    """Which cases fail, in a line; empty where that is not known, or there was one case."""
    found = evaluation.failing if isinstance(evaluation, Rejected) else None
    if found is None or found.judged < 2:
        return ""
    return _failing(found)


def _failing(found: FailingCases) -> str:
    if found.failed == found.judged:
        return f"all {found.judged} that ran fail."
    if found.feature:
        rule = f"{found.feature} {found.relation} {found.value}"
        rule = rule.replace("D not a", "D that is not a")
        last = " D is the last dimension." if found.feature == "D" else ""
        return f"all with {rule} fail ({found.failed} of {found.judged}), and no others.{last}"
    shapes = "; ".join(found.shapes) + ("; …" if found.failed > len(found.shapes) else "")
    return f"{found.failed} of {found.judged} fail, of shapes {shapes}."


def cause(explanation: Explanation) -> str:
    """What an explanation says to people, as a clause with a full stop."""
    match explanation:
        case explanations.Unexplained():
            return NOTHING_FITS
        case explanations.LeftOut(what=what):
            return f"{what} is left out."
        case explanations.Swapped(one=one, other=other):
            return f"{one} and {other} are swapped."
        case explanations.Negated(what=what):
            return f"{what} has the wrong sign."
        case explanations.Misread():
            return _misread(explanation)
        case explanations.Multiple(factor=factor, before=before):
            what = f"what '{before}' is added to" if before else "the result"
            return f"{what} is {factor:.6g} times what it should be, everywhere."
        case explanations.Offset(amount=amount):
            return f"the result is {amount:.6g} more than it should be, everywhere."
        case explanations.Constant(value=value):
            return f"every element is {value:.6g}, as where nothing is computed."
        case explanations.Unwritten():
            return (
                "every element is NaN, as where nothing was written: look whether a kernel is launched, how large its "
                "grid is, and which threads return early."
            )
        case explanations.Returned(what=what):
            return f"the result is {what}, unchanged."
        case explanations.Displaced(by=by):
            places = f"{abs(by):,} element{'s' * (abs(by) > 1)}"
            return f"the values are right and stand {places} too {'late' if by > 0 else 'early'}."
        case explanations.VarianceDivisor(divisor=divisor, expected=expected):
            return f"the variance is divided by {divisor} and not by {expected}."
        case explanations.EpsOutsideRoot():
            return "eps is added to the standard deviation, outside of the root, and not to the variance."
        case explanations.OtherEps(used=used, expected=expected):
            return _eps(used, expected)
        case explanations.MeanKept():
            return "the mean is not taken off."
        case explanations.MeanTakenOff():
            return "the mean is taken off, and should not be."
        case explanations.OtherGelu(used=used, expected=expected):
            return f"GELU is in its {used} form; the {expected} one was asked for."
        case explanations.MaximaFromZero():
            return "a maximum begins with 0 and not with minus infinity, so that it is never negative."
        case explanations.OtherDimension(used=used, expected=expected, of=of):
            return (
                f"sums, means, maxima or the like are over {_dimensions(used)}, and should be over "
                f"{_dimensions(expected)} (of {of}, counted from 0)."
            )
        case explanations.OtherStep(used=used):
            return OTHER_STEPS[used]
        case explanations.SumLeftOut(terms=terms, number=number, count=count):
            which = f"number {number} of the {count} that the reference computes"
            return f"a sum or mean over {terms:,} elements ({which}) is left out."
        case explanations.PartOfRow():
            return _part(explanation)
        case explanations.Cancelled(mean_over_deviation=ratio):
            here = "" if ratio is None else f" (here {ratio:,.0f} standard deviations)"
            return (
                f"right unless the mean is large{here}: the variance is off by what E[x²] − m² loses in float32. "
                "Take the mean off before squaring."
            )
        case explanations.Rounded(what=what, dtype=dtype):
            return _rounded(what, dtype)
        case explanations.Earlier(what=what):
            return _earlier(what)
        case explanations.KeptFromBefore():
            return (
                "a new model is right on the same data: something is kept from the calls before (a weight, a size, a "
                "buffer that is not reset), or it is a matter of chance."
            )
        case explanations.NotDeterministic(differing=differing, of=of):
            return (
                f"not deterministic: another call on the same data differs in {differing:,} of {of:,} elements. "
                "A race, random numbers, or memory that nothing was written to."
            )
        case explanations.Region():
            return _region(explanation)
        case explanations.Border():
            return _border(explanation)


OTHER_STEPS = {
    "sum": "a sum stands where a mean should: it is not divided by the number of terms.",
    "mean": "a mean stands where a sum should: it is divided by the number of terms.",
    "smallest": "the smallest is taken where the largest should be.",
    "largest": "the largest is taken where the smallest should be.",
    "other_end": "sorted, or taken, from the other end: the smallest first for the largest, or the other way round.",
    "backwards": "the right values, in the opposite order.",
    "mask_inverted": "a mask is taken the other way round: what should be kept is masked, and the rest kept.",
    "diagonal_above": "a triangle (tril, triu, a causal mask) begins one diagonal too far up.",
    "diagonal_below": "a triangle (tril, triu, a causal mask) begins one diagonal too far down.",
    "exclusive": "a running sum leaves out the element itself.",
    "from_the_end": "what runs along a dimension begins at its end.",
    "halves_swapped": "the two halves of a tensor that is split, as a value and its gate, are swapped.",
    "kernel_flipped": "the convolution's kernel is flipped; PyTorch's does not flip it.",
}


def _dimensions(dimensions: list[int]) -> str:
    if len(dimensions) == 1:
        return f"dimension {dimensions[0]}"
    return f"dimensions {', '.join(map(str, dimensions[:-1]))} and {dimensions[-1]}"


def _earlier(what: str) -> str:
    if what == "result":
        return "this is an earlier call's result."
    if what in ("weights", "inputs"):
        return f"this is what the {what} of an earlier call give."
    return f"this is what {what} of an earlier call gives, with all else as it is now."


def _eps(used: float | None, expected: float) -> str:
    if used is None:
        return f"eps is left out, or far smaller than the {expected:g} that it should be."
    return f"eps, {expected:g}, is left out." if used == 0 else f"eps is {used:g} and should be {expected:g}."


def _misread(found: explanations.Misread) -> str:
    if found.how == "contiguous":
        return f"{found.what} is read as if it were contiguous; its strides say otherwise."
    if found.how == "int32":
        return f"{found.what} holds int64 and is read as int32: every second number is the upper half of one."
    return f"the last two dimensions of {found.what} are exchanged in memory."


def _part(found: explanations.PartOfRow) -> str:
    if found.lanes:
        return f"sums are over the first 32 of every {found.lanes}, of {found.of:,} elements{_divided(found)}."
    which = "last" if found.start else "first"
    many = "" if found.used == 1 else f" {found.used:,}"
    return f"sums are over the {which}{many} of {found.of:,} elements{_divided(found)}."


def _divided(found: explanations.PartOfRow) -> str:
    return "" if found.divided_by == found.used else f", and divided by {found.divided_by:,}"


def _rounded(what: str, dtype: str) -> str:
    if what == "steps":
        return f"right in 32 bits; in {dtype} it is off by as much as sums and steps kept in {dtype} round."
    if what == "sums":
        return f"every element is a number of {dtype}, and off by as much as sums that are added up in {dtype}."
    return f"the {what} {'were' if what == 'inputs' else 'was'} rounded to {dtype} on the way."


_CONTENTS = {"nan": "NaN, as where nothing was written", "zero": "zero", "wrong": "wrong"}


def _region(found: Region) -> str:
    if found.dimension is not None and found.columns:
        return (
            f"only {_places(found.columns, 'place')} of dimension {found.dimension} {_are(found)}; all else is right."
        )
    unit = "column" if found.split else "element"
    parts = [_places(found.columns, unit)] if found.columns else []
    parts += [_places(found.rows, "row")] if found.rows else []
    return f"only {' of '.join(parts)} {_are(found)}; all else is right."


def _border(found: explanations.Border) -> str:
    last = "the last dimension" if found.dimensions == 1 else f"the last {found.dimensions} dimensions"
    places = "place" if found.width == 1 else f"{found.width:,} places"
    return (
        f"only the first and the last {places} of {last} are wrong; all else is right: look at what is read beyond the "
        "border."
    )


def _are(found: Region) -> str:
    one = all(p.stop - p.start == 1 and not p.period for p in (found.rows, found.columns) if p)
    return f"{'is' if one else 'are'} {_CONTENTS[found.content]}"


def _places(found: Places, unit: str) -> str:
    number = found.stop - found.start
    if found.period:
        which = f"{found.start}" if number == 1 else f"{found.start} to {found.stop - 1}"
        return f"the {unit}s whose number modulo {found.period} is {which}"
    end = "last" if found.start else "first"
    many = "" if number == 1 else f" {number:,}"
    return f"the {end}{many} of {found.count:,} {unit}s{_tail(found)}"


def _tail(found: Places) -> str:
    """What the last ones are left over from, in steps that kernels take."""
    number = found.stop - found.start
    steps = [f"{step:,}" for step in TAILS if found.start and number == found.count % step]
    return f" ({found.count:,} modulo {' and '.join(steps)})" if steps else ""
