"""The robots exclusion protocol: robots.txt (RFC 9309), and the directives of pages. `processors.preconditions` fetches it.

retrieval     where a robots.txt is, its redirects, and what an answer means
rules         the lines and groups of a robots.txt -> `RobotsRules`, which decide about URLs and explain their decision
patterns      which URLs the path of a rule matches
cache         rules by origin for a day; verdicts of URLs that had to wait; Crawl-delays by gate
directives    X-Robots-Tag and meta robots, and what they mean for a page's links
"""
