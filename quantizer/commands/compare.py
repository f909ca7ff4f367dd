"""`quantizer compare`: compares two archives of arrays by error figures and by the categories of tpu-mlir."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from quantizer.commands.json_output import json_text
from quantizer.core.errors import FormatError

if TYPE_CHECKING:
    from quantizer.reporting.arrays import Comparison, Pair

PASSED, FAILED = 0, 1
_EPILOG = """\
verdicts, the first that holds:
  EQUAL      every element
  CLOSE      numpy.allclose with rtol 10**-ORDER and atol 1e-8, for an order of --close or more
  SIMILAR    cosine and euclidean similarity above --cosine and --euclid
the words are those of arrays as tpu-mlir reads them: int8 and int32 as they are (int8 must be EQUAL),
uint16 as bfloat16, everything else as float32; the differences beside them are those of the files

always a failure: no common names, other shapes or number formats, NaN, infinities, and with --step
an element further than half a step from the reference

exit status: 0 everything passed, 1 something failed, 2 the input cannot be read
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `compare` to the command line."""
    parser = subparsers.add_parser(
        "compare",
        help="compare two archives of arrays (.npz)",
        description="Compare two archives of arrays by name.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="TARGET.npz", type=Path, help="the arrays to judge")
    parser.add_argument("reference", metavar="REFERENCE.npz", type=Path, help="the arrays to compare them with")
    parser.add_argument("--close", metavar="N", type=_order, default=3, help="order of CLOSE (default: 3)")
    parser.add_argument(
        "--cosine", metavar="C", type=_share, default=0.99, help="cosine similarity of SIMILAR (default: %(default)s)"
    )
    parser.add_argument(
        "--euclid",
        metavar="E",
        type=_share,
        default=0.99,
        help="euclidean similarity of SIMILAR (default: %(default)s)",
    )
    parser.add_argument("--int8-similar", action="store_true", help="arrays of int8 may be CLOSE or SIMILAR too")
    parser.add_argument(
        "--step",
        metavar="NAME=SCALE",
        action="append",
        default=[],
        type=_step,
        help="quantization step of an array: each element must lie within half of it (repeatable)",
    )
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of a table")


def run(args: argparse.Namespace) -> int:
    """Compare the two files and write the result."""
    from quantizer.ir.formats.npz import read_npz
    from quantizer.reporting.arrays import Tolerances, compare_arrays

    tolerances = Tolerances(args.close, args.cosine, args.euclid, int8_equal=not args.int8_similar)
    target, reference = read_npz(args.target), read_npz(args.reference)
    # the dict below would keep the last step and hide the first
    if len(dict(args.step)) != len(args.step):
        raise FormatError("--step: one name is given twice: write one step for each array.")
    found = compare_arrays(target, reference, tolerances, dict(args.step))
    text = _json(found) if args.json else "\n".join(_lines(found))
    sys.stdout.write(f"{text}\n")
    return PASSED if found.passed else FAILED


def _order(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 15:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from 1 to 15")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # NaN, too, fails this comparison
    if not -1.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number from -1 to 1")
    return value


def _step(text: str) -> tuple[str, float]:
    name, equals, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not equals or not name or not 0.0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: must be NAME=SCALE, the scale a positive number")
    return name, value


def _json(found: Comparison) -> str:
    pairs = [{**asdict(pair), "passed": pair.passed} for pair in found.pairs]
    told = {
        "passed": found.passed,
        "arrays": pairs,
        "only_target": list(found.only_target),
        "only_reference": list(found.only_reference),
        "unused_steps": list(found.unused),
    }
    return json_text(told)


def _lines(found: Comparison) -> list[str]:
    from tabulate import tabulate

    headers = ["array", "format", "shape", "verdict", "cosine", "euclid", "unequal", "largest", "relative", "steps", ""]
    lines = (
        [tabulate([_row(pair) for pair in found.pairs], headers=headers, disable_numparse=True)] if found.pairs else []
    )
    for what, names in (("TARGET", found.only_target), ("REFERENCE", found.only_reference)):
        if names:
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            lines.append(f"only in {what}: {', '.join(names[:10])}{more}")
    lines += [f"step of {name!r}: both archives must have that array" for name in found.unused]
    if not found.pairs:
        return [*lines, "failed: the archives have no name in common"]
    failed = sum(not pair.passed for pair in found.pairs)
    words = [pair.likeness.word for pair in found.pairs]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    verdict = "passed" if found.passed else f"failed: {failed} of {len(found.pairs)} arrays"
    return [*lines, f"{verdict} ({counts})"]


def _row(pair: Pair) -> list[str]:
    like = pair.likeness
    word = f"{like.word} (order {like.order})" if like.order is not None else like.word
    numbers = ["" if value is None else f"{value:.6f}" for value in (like.cosine, like.euclid)]
    where = f" at {list(pair.worst)}" if pair.largest else ""
    codes = " codes" if pair.dtype.startswith(("int", "uint")) else ""
    steps = "" if pair.in_steps is None else f"{pair.in_steps:.4g}"
    fault = pair.fault or ("" if pair.passed else "failed")
    return [
        pair.name,
        pair.dtype,
        str(list(pair.shape)),
        word,
        *numbers,
        str(pair.unequal),
        f"{pair.largest:.6g}{codes}{where}",
        f"{pair.relative:.3g}",
        steps,
        fault,
    ]
