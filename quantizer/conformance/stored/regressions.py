"""Tells whether an operator has stored regressions or declared defects, and so needs an item for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.xfails import read_xfails
from quantizer.conformance.stored.folders import Stores
from quantizer.core.errors import CaseError
from quantizer.core.files import is_file, is_folder
from quantizer.core.library import Library
from quantizer.core.reading import Readable

STORED = Readable("a stored case", 1 << 20, CaseError)


def has_regressions(options: Options, library: Library, op: str) -> bool:
    """Return whether *op* has a stored regression, or a defect that the function under test may have to show.

    Which defects it must show is known only after the function is loaded. Every stored case belongs to one operator,
    which the case names even if its defect is declared for all operators.
    """
    stores = Stores(options, op, library.paths[op])
    for path in stores.regressions():
        # OP-SCHEME-PLATFORM-DIGEST.json: the name tells what is selected, without reading the file
        words = path.stem.removeprefix(f"{op}-").split("-")
        if options.real is None or len(words) != 3 or options.selects(words[0], words[1]):
            return True
    return any(_is_of(path, op) for path in _declared(stores, library))


def _declared(stores: Stores, library: Library) -> Iterator[Path]:
    """Yield the stored cases of defects and of known failures that an item of the operator may have to show."""
    options, op = stores.options, stores.op
    if options.xfails is not None:
        known = [entry for entry in read_xfails(options.xfails).xfails if entry.concerns(op)]
        yield from (options.xfails.parent / entry.case for entry in known)
    for platform in library.platforms.values():
        name = platform.platform
        if options.real is not None and not options.real.computes(name, named=name in options.platforms):
            continue
        for defect in platform.defects:
            ours = options.real is not None or defect.engine is None
            if ours and defect.concerns(op) and is_folder((path := stores.defect(name, defect.case)).parent):
                yield path


def _is_of(path: Path, op: str) -> bool:
    """Return whether a stored case is of *op*, or missing or unreadable, which the item then reports."""
    if not is_file(path):
        return True
    try:
        # a search in the text, because collection must not wait for reading and checking hundreds of cases
        return re.search(rf'"op": ?"{re.escape(op)}"', STORED.text_of(path)) is not None
    except CaseError:
        return True
