"""On a terminal long lines break between words; a file gets them whole."""

import time

import pytest

from schedproof.gate.console.output import busy, make_console


def printed(text, terminal, monkeypatch, capsys, **options):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    console = make_console()
    console._force_terminal = terminal
    console.print(text, **options)
    return capsys.readouterr().out


def test_a_file_gets_a_line_whole(monkeypatch, capsys):
    text = "  rule:     " + "word " * 20 + "end"
    assert printed(text, False, monkeypatch, capsys) == text + "\n"


def test_a_terminal_continues_under_the_text_behind_the_label(monkeypatch, capsys):
    text = "  rule:     In every decode step the batch is within its limit."
    assert printed(text, True, monkeypatch, capsys).splitlines() == [
        "  rule:     In every decode step the",
        "            batch is within its limit.",
    ]


def test_a_terminal_continues_two_further_in_without_a_label(monkeypatch, capsys):
    text = "  r4 reaches tkv 26153 at most, which is one block beyond"
    assert printed(text, True, monkeypatch, capsys).splitlines() == [
        "  r4 reaches tkv 26153 at most, which is",
        "    one block beyond",
    ]


def test_a_command_stays_whole_so_that_it_can_be_copied(monkeypatch, capsys):
    text = "  replay:   schedproof replay schedproof-out/SPY-R07-5af010cd83.json --rule SPY-R07"
    assert printed(text, True, monkeypatch, capsys) == text + "\n"


def test_brackets_in_data_are_no_markup(monkeypatch, capsys):
    text = "  step      [red]1[/red] " + "x" * 40
    assert "[red]1[/red]" in printed(text, True, monkeypatch, capsys, markup=False)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_width_of_zero_hides_nothing(terminal, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "0")
    console = make_console()
    console._force_terminal = terminal
    console.print("conforms")
    assert "conforms" in capsys.readouterr().out


def test_colours_in_a_file_bring_no_spinner(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with busy(make_console(), "working") as progress:
        progress("step 1")
        time.sleep(0.3)
    assert capsys.readouterr().out == ""
