"""The pages of the console, one file each. `shell` has what all of them share: header, palette, tables, actions.

A page is built once for each window that opens it, and redraws itself by a timer. What it shows comes from `watch` and
`operate`, in a thread, because both may wait. All texts from the web are shown as text: never as HTML, and never as the target
of a link.
"""
