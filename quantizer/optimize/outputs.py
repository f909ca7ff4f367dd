"""The files that a run writes: their names, and a check, before any work is done, that they can be written."""

from __future__ import annotations

import os
from pathlib import Path

from quantizer.core.files import exists, overwritten
from quantizer.core.wording import shown_path
from quantizer.optimize.cfg import Options
from quantizer.optimize.dumping import dump_folders


def output_files(options: Options) -> dict[str, Path]:
    """Return the files that step 9 writes: constants, text, opt_template.json, and statistics if the cfg asks for them.

    A template that the user edited as this run's opt_config is not overwritten.
    """
    folder, model, name = output_folder(options), options.text("model_name"), output_name(options)
    found = {"constants": folder / f"{name}.bin", "text": folder / f"{name}.txt"}
    template, edited = folder / f"{model}_opt_template.json", options.file("opt_config")
    if edited is None or overwritten([edited], [template]) is None:
        found["template"] = template
    if options["save_statistic_info"]:
        found["statistics"] = folder / f"{model}_statistic_info.npz"
    return found


def output_folder(options: Options) -> Path:
    """Return the folder that the run writes into."""
    return options.base / options.text("output_dir")


def output_name(options: Options) -> str:
    """Return the name of the quantized IR's files, without suffix."""
    return options.text("quant_ir_name") or options.text("out_ir_name") or f"{options.text('model_name')}_o"


def check_output(options: Options) -> None:
    """Raise FormatError if the output folder cannot be written, or a file is read there, before any work is done."""
    folder = output_folder(options).absolute()
    # the folder is created later, so the nearest folder that exists must be writable
    existing = next(path for path in (folder, *folder.parents) if exists(path))
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        what = "is not a folder" if not existing.is_dir() else "cannot be written"
        raise options.error("output_dir", f"{shown_path(existing)}: {what}. Nothing was written.")
    if (path := overwritten([options.path, *options.files.values()], output_files(options).values())) is not None:
        text = f"{shown_path(path)} would be written, and this run reads it. Name another output_dir or out_ir_name."
        raise options.error("output_dir", f"{text} Nothing was written.")
    # real paths, because a link may lead to a folder of the same files
    dumped = {os.path.realpath(folder) for folder in dump_folders(options)} if options["dump"] else set()
    for path in options.files.values():
        if os.path.realpath(path.parent) in dumped:
            text = f"{shown_path(path)} is read, and lies where tensors are written. Name another dump_dir."
            raise options.error("dump_dir", f"{text} Nothing was written.")
