"""The parser of `quantizer`: its error for a wrong command line is one line that says what to write instead."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from quantizer.core.wording import suggestion

_KINDS = {"int": "a whole number", "float": "a number"}


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors, and those of its subcommands, are one line with place, value, rule and remedy.

    argparse itself prints the command's usage first, reports an unknown option last and only from the top command, and
    suggests nothing.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Report an unknown option before argparse reports arguments that are missing because of it."""
        words = list(sys.argv[1:] if args is None else args)
        for option in self._unknown(words):
            if (verbs := self._verbs()) is not None:
                self.error(f"{option}: no such option. Options of a {verbs.metavar} follow its name. {_one_of(verbs)}")
            known = sorted(name[2:] for name in self._option_string_actions if name.startswith("--"))
            self.error(f"{option}: no such option.{_options(option, known)}")
        parsed, left = super().parse_known_args(words, namespace)
        # a parser with verbs leaves surplus arguments to that of the verb, which knows how many it takes
        if left and self._verbs() is None:
            self.error(f"{left[0]}: one argument too many. Write {' '.join([self.prog, *self._required()])}.")
        return parsed, left

    def error(self, message: str) -> NoReturn:
        """Write *message* as one line and exit with status 2."""
        self.exit(2, f"error: {self.prog}: {self._sentence(message)} See `{self.prog} --help`.\n")

    def _unknown(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the first word that looks like an option but is unknown to this parser.

        Options of a subcommand are left to its own parser.
        """
        # up to the name of a subcommand
        leads_on = self._verbs() is not None
        for word in words:
            if word == "--" or (leads_on and not word.startswith("-")):
                return
            name = word.partition("=")[0]
            # -5 and - are values
            if not re.match(r"--?[A-Za-z]", word) or name in self._option_string_actions:
                continue
            if word.startswith("--"):
                meant = [option for option in self._option_string_actions if option.startswith(name)]
                if len(meant) == 1:  # argparse accepts an unambiguous abbreviation of an option
                    continue
            elif word[:2] in self._option_string_actions:  # -c3 is a short option with its value
                continue
            yield name
            return

    def _verbs(self) -> argparse._SubParsersAction[Any] | None:
        return next((action for action in self._actions if isinstance(action, argparse._SubParsersAction)), None)

    def _required(self) -> Iterator[str]:
        """Yield the words of the shortest valid command line of this parser."""
        for action in self._actions:
            name = str(action.metavar or action.dest.upper())
            if action.required and not action.option_strings:
                yield name
            elif action.required:
                yield f"{action.option_strings[-1]} {name}"

    # overrides a method of argparse, which lists the choices in its own words and suggests none
    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            legal = [str(choice) for choice in action.choices]
            near = suggestion(value, legal, "Write one of")
            text = f"{value!r}: must be one of {', '.join(legal)}.{near if 'Did you mean' in near else ''}"
            raise argparse.ArgumentError(action, text)

    def _sentence(self, message: str) -> str:
        """Return argparse's *message* as a sentence that says what to write."""
        if found := re.fullmatch(r"the following arguments are required: (.*)", message):
            verbs = self._verbs()
            if verbs is not None and found[1] == verbs.metavar:
                return f"no {verbs.metavar} is given. {_one_of(verbs)}"
            return f"{found[1]} missing. Write {' '.join([self.prog, *self._required()])}."
        if found := re.fullmatch(r"one of the arguments (.*) is required", message):
            return f"one of {', '.join(found[1].split())} must be given."
        text = message.removeprefix("argument ")
        if found := re.fullmatch(r"(.*): invalid (\w+) value: (.*)", text, re.DOTALL):
            return f"{found[1]}: {found[3]}: must be {_KINDS.get(found[2].strip('_'), 'another value')}."
        if found := re.fullmatch(r"(.*): not allowed with argument (.*)", text):
            return f"{found[1]} and {found[2]} exclude each other. Remove one."
        if found := re.fullmatch(r"(.*): expected (?:one|at least one) argument", text):
            option = self._option_string_actions.get(found[1].split("/")[0])
            metavar = option.metavar if option is not None and option.metavar else "VALUE"
            return f"{found[1]}: has no value. Write {found[1].split('/')[-1]} {metavar}."
        return text if text.endswith((".", "?")) else f"{text}."


def _one_of(verbs: argparse._SubParsersAction[Any]) -> str:
    return f"Write one of {', '.join(verbs.choices)}."


def _options(option: str, known: Sequence[str]) -> str:
    """Return a sentence that suggests the nearest of the *known* long options (without dashes), or lists all."""
    near = suggestion(option.lstrip("-"), known, "Options")
    if "Did you mean" in near:
        return near.replace("mean '", "mean '--")
    return f" Options: {', '.join(f'--{name}' for name in known)}."
