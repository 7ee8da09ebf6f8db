"""What a host asks of robots: robots.txt, and what its pages say themselves. The fetching is the precondition's.

body ─▶ parsing (lines, groups) ─▶ RobotsRules over patterns (what a rule's path matches) ─▶ allows(url)
status and body ─▶ cache (RFC 9309's reading of an answer; rules by origin, for a day)
rules and URL ─▶ verdicts (what was decided of URLs that had to wait)
Crawl-delay ─▶ delays (what the gate of several origins has to keep)
a fetch ─▶ redirects (where a robots.txt leads, within one time)
X-Robots-Tag, meta robots ─▶ directives (what follows for a page's links)
a person's question ─▶ explaining (which group, which line decided)
"""
