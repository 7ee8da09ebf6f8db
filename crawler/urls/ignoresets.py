"""Ignore sets: maintained lists of patterns for URLs that lead nowhere new, by name and version.

An order names the sets that it wants (`[scope] ignore`). `calendars` means the newest version when the job begins; the job
keeps `calendars@1`, so a program with newer lists changes no job that has begun. A list never changes: it gets another version.

The patterns are regular expressions, found anywhere in a canonical URL in any case. Each takes linear time in the URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

#: Name -> version -> patterns.
IGNORE_SETS: Mapping[str, Mapping[int, Sequence[str]]] = MappingProxyType(
    {
        # Pages of days, weeks and months, of which there is always a next one.
        "calendars": {
            1: (
                (
                    r"[?&](?:tribe-bar-date|tribe_event_display|tribe_paged|eventdisplay|outlook-ical|ical|cal_?month|calmonth"
                    r"|caldate|cal_date|calendar_date|calendarmonth|mc_id|mcat|yearid|simcal_[a-z]+)="
                ),
                r"[?&](?:month|mon|mo|m)=\d{1,2}&(?:[^&]{0,40}&)?(?:year|yr|y)=\d{2,4}",
                r"[?&](?:year|yr|y)=\d{2,4}&(?:[^&]{0,40}&)?(?:month|mon|mo|m)=\d{1,2}",
                (
                    r"/(?:events?|calendar|kalender|calendrier|calendario|agenda|veranstaltungen|termine)/(?:[a-z-]{1,20}/)?"
                    r"\d{4}[-/]\d{1,2}(?:[-/?]|$)"
                ),
                r"/(?:events?|calendar)/(?:day|week|month|year|today|photo|map|list)/\d",
                r"/(?:year|month|week|day)\.(?:calendar|listevents)/\d{4}",
                r"/(?:month|week|day|year)(?:_?view)?\.php\?",
                r"^https?://(?:calendar|www)\.google\.com/calendar/",
            ),
        },
        # Buttons that send a page to friends, networks and bookmarks.
        "share-buttons": {
            1: (
                r"^https?://(?:[a-z-]+\.)?facebook\.com/(?:sharer|share\.php|dialog/(?:share|feed)|plugins/)",
                r"^https?://(?:www\.|mobile\.)?(?:twitter|x)\.com/(?:intent/|share\b|home\?status=)",
                r"^https?://(?:www\.)?linkedin\.com/(?:sharearticle|cws/share|sharing/)",
                r"^https?://(?:[a-z]{2,3}\.)?pinterest\.[a-z.]{2,6}/pin/create/",
                r"^https?://(?:www\.|old\.)?reddit\.com/(?:r/[^/]+/)?submit\b",
                r"^https?://(?:www\.)?(?:telegram|t)\.me/share/",
                r"^https?://(?:api\.whatsapp\.com/send|wa\.me/\?text=|web\.whatsapp\.com/send)",
                r"^https?://(?:www\.)?tumblr\.com/(?:share|widgets/share)",
                r"^https?://(?:www\.)?(?:getpocket\.com/(?:save|edit)|instapaper\.com/(?:hello2|edit))",
                r"^https?://news\.ycombinator\.com/submitlink",
                r"^https?://(?:www\.)?(?:vk\.com|vkontakte\.ru)/share\.php",
                r"^https?://(?:www\.)?(?:addtoany\.com/(?:share|add_to)|addthis\.com/bookmark|addthis\.com/tellfriend)",
                r"^https?://(?:www\.)?(?:digg\.com/submit|stumbleupon\.com/submit|delicious\.com/(?:save|post)|xing\.com/spi/shares)",
                r"^https?://plus\.google\.com/share\b",
                r"^https?://(?:share\.flipboard\.com/|bufferapp\.com/add|buffer\.com/add|service\.weibo\.com/share/)",
                (
                    r"[?&]share=(?:facebook|twitter|x|linkedin|pinterest|reddit|tumblr|pocket|telegram|jetpack-whatsapp|whatsapp"
                    r"|email|print|mastodon|bluesky|threads|skype|press-this|google-plus-1)\b"
                ),
            ),
        },
        # What a member of a forum can do: reply, report, sort, print. No page of its own is behind it.
        "forum-actions": {
            1: (
                r"/posting\.php\?(?:[^#?]*&)?mode=",
                r"/(?:ucp|mcp|memberlist)\.php\?(?:[^#?]*&)?(?:mode|i|sk|sd|search_group_id)=",
                r"/viewtopic\.php\?(?:[^#?]*&)?(?:view=(?:previous|next|print|unread)|watch=|unwatch=|bookmark=|vote_id=)",
                (
                    r"/(?:newreply|newthread|newattachment|sendmessage|private|usercp|editpost|report|reputation|subscription"
                    r"|moderation|printthread|showpost|login|register|profile|misc|ajax|calendar|poll)\.php\?(?:[^#?]*&)?"
                    r"(?:do|p|t|u|tid|pid|uid|postid|threadid|action)="
                ),
                r"/(?:member|misc|search|usercp|sendthread|ratethread)\.php\?(?:[^#?]*&)?action=",
                (
                    r"/index\.php\?(?:[^#?]*[;&])?action=(?:activate|announce|emailuser|login2?|logout|markasread|notify|pm|post2?"
                    r"|printpage|profile|quickmod|register|reminder|reporttm|search2?|sendtopic|stats|unread|who)\b"
                ),
                (
                    r"/(?:posts|threads|members)/[^/?]+/(?:add-reply|reply|like|react|reactions|report|bookmark|watch|quote|share"
                    r"|warn|permalink)(?:[/?]|$)"
                ),
                (
                    r"[?&]do=(?:report|reportcomment|quotecomment|findcomment|getnewcomment|getlastcomment|add|showreactionscomment"
                    r"|markread|email)\b"
                ),
                r"[?&]replytocom=\d",
            ),
        },
        # Names of visits in URLs: each visit of the crawl makes all pages new.
        "session-ids": {
            1: (
                (
                    r"[;?&](?:jsessionid|phpsessid|aspsessionid[a-z]{8}|oscsid|xtcsid|zenid|fe_typo_user|sessionid|session_id"
                    r"|sessid|sess_id|s_id|vsid|psid)=[^&]"
                ),
                r"[?&](?:cfid|cftoken|jsessionidsso)=[^&]",
                r"[?&](?:sid|s|session|ses)=[0-9a-f]{16,128}(?:&|$)",
                r"/\((?:[a-z]\([0-9a-z]{20,64}\)){1,4}\)/",
                r"/(?:sid|session)[=/-][0-9a-f]{20,128}(?:[/?]|$)",
            ),
        },
    }
)


def pinned(name: str) -> str:
    """The name of a set with its version, the newest one if it has none. Raises: ValueError for one that is not known."""
    bare, at, version = name.partition("@")
    versions = IGNORE_SETS.get(bare)
    if versions is None:
        raise ValueError(f"has {name!r}, which is no ignore set; there are {', '.join(IGNORE_SETS)}")
    if not at:
        return f"{bare}@{max(versions)}"
    if not version.isascii() or not version.isdecimal() or int(version[:9]) not in versions or version != version[:9]:
        known = ", ".join(f"{bare}@{one}" for one in versions)
        raise ValueError(f"has {name!r}, which is no version of that ignore set; there is {known}")
    return f"{bare}@{int(version)}"


def patterns_of(name: str) -> Sequence[re.Pattern[str]]:
    """The patterns of a pinned set."""
    bare, _, version = name.partition("@")
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in IGNORE_SETS[bare][int(version)])
