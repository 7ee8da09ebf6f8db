"""The lab: published experiments and your own comparisons, one command each.

`experiments.py` has all experiments by name. An experiment (in `filters/`, `policies/` or `simulation/`) measures and returns a
`LabReport` (`report.py`): tables, panels of curves, closing sentences. `urls.py` generates URLs, `web/` makes and serves a web,
`plots.py` draws the panels, and `crawler/cli/lab.py` shows everything.
"""
