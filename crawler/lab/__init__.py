"""The lab: published experiments and your own comparisons, one command each.

`experiments.py` has all experiments by name. An experiment (in `filters/`, `policies/` or `simulation/`) measures and returns a
`LabReport` (`report.py`): tables, panels of curves, closing sentences. `urls.py` generates URLs, `miniweb.py` serves a web in a
box (`web/`), `plots.py` draws the panels, `crawler/cli/lab.py` shows everything.
"""
