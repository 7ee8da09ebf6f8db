"""The table of HTML's links: which attributes of which elements hold URLs, which hop they are, and how a value is read.

Compared with Heritrix (ExtractorHTML) and with the attributes of the common lazy loaders. Of Heritrix's list these are left out
on purpose: `profile` (a name), `classid` and `usemap` (parts of the page), `codebase` (a base, read as one), and `href` of
elements that have none in a standard. `longdesc` and `cite` lead to pages, so they are links. An order adds to the table by
`embed_attributes` and `link_attributes`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote

from anabranch.crawler.extract.css_js import css_links, is_likely, speculative_links
from anabranch.crawler.extract.links import EMBED, NAVIGATION, SPECULATIVE, ExtractOptions, Reference

#: The attributes of an element as written; None: without a value.
Attributes = Mapping[str, str | None]

XLINK = "xlink:href"
_REFERENCE = ("href", XLINK)

#: Elements with embedded URLs: one in each of these attributes, more in their `srcset`.
_EMBEDDING: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(["audio", "bgsound", "embed", "frame", "iframe", "img", "input"], ("src",)),
    **dict.fromkeys(["script", "source", "track"], ("src",)),
    **dict.fromkeys(["fencedframe", "ilayer", "layer", "model", "portal", "xml", "mglyph"], ("src",)),
    "video": ("src", "poster"),
    # SVG. Most refer to a part of their own document (`#id`), which is no link.
    **dict.fromkeys(["image", "use", "feimage", "cursor", "filter", "pattern", "textpath", "tref"], _REFERENCE),
    **dict.fromkeys(["color-profile", "font-face-uri", "lineargradient", "mpath", "radialgradient"], _REFERENCE),
}
#: Elements that refer to pages, besides `a` and `area`.
_LINKING: Mapping[str, tuple[str, ...]] = {
    # MathML
    **dict.fromkeys(
        ["math", "maction", "menclose", "merror", "mfenced", "mfrac", "mi", "mmultiscripts", "mn"], _REFERENCE
    ),
    **dict.fromkeys(
        ["mo", "mover", "mpadded", "mphantom", "mroot", "mrow", "ms", "msqrt", "mstyle", "msub"], _REFERENCE
    ),
    **dict.fromkeys(
        ["msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover", "semantics"], _REFERENCE
    ),
}
#: Attributes of custom elements, such as `amp-img`.
CUSTOM = frozenset({"src", "srcset", "poster"})
#: Attributes that are read on any element, though browsers know them on some only: they have no other meaning.
_GLOBAL = {
    **dict.fromkeys(["background", "dynsrc", "lowsrc", "manifest", "qtsrc"], EMBED),
    **dict.fromkeys(["cite", "longdesc"], NAVIGATION),
}

#: Attributes from which scripts load images later, on any element. These have no other meaning, so their value is not judged.
_LATE = "data-src data-original data-lazy-src data-src-small data-src-medium data-full-src"
_LATE_SETS = (
    "data-srcset data-original-set data-lazy-srcset data-full-srcset data-rocket-srcset data-flickity-lazyload-srcset "
    "data-ezsrcset data-cfsrcset data-gl-srcset data-wf-srcset data-cmplz-srcset data-wpfc-original-srcset data-frz-srcset "
    "data-splide-lazy-srcset data-src-set data-srcset-webp data-lazy-srcset-webp data-opt-srcset data-pagespeed-lazy-srcset "
    "nitro-lazy-srcset lazy-srcset data-bgset data-bg-set data-background-image-set data-background-set"
)
#: Others. Scripts write more than URLs there (`true`, `dark`, 42, CSS, JSON), so only what looks like a URL is read.
_LATE_IF_LIKELY = (
    # In place of `src`
    "data-lazy data-lazyload data-lazy-load data-lazysrc data-lazyload-src data-lazy-load-src data-lazy-img data-lazy-image "
    "data-lazy-url data-original-src data-originalsrc data-original-url data-orig data-orig-src data-orig-file data-origin "
    "data-origin-src data-ori-src data-real-src data-realsrc data-actualsrc data-actual data-defer-src data-deferred "
    "data-deferred-src data-delay-src data-delayed-url data-async-src data-load-src data-loadsrc data-late-src "
    "data-fallback-src "
    "data-splide-lazy data-swap-src data-rocket-src data-rocketsrc data-cfsrc data-ezsrc data-gl-src data-wf-src "
    "data-cmplz-src data-cookieblock-src "
    "data-litespeed-src data-perfmatters-src data-nitro-lazy-src data-opt-src data-frz-src data-sp-src data-eio-rsrc "
    "data-wpfc-original-src data-pagespeed-lazy-src data-pagespeed-high-res-src pagespeed_lazy_src pagespeed_high_res_src "
    "data-flickity-lazyload data-flickity-lazyload-src data-layzr data-echo data-aload data-blazy data-ll-src data-sco-src "
    "data-ks-lazyload data-ks-lazyload-custom data-ks-lazy-load data-lazyload-img source-data-lazy-img data-amsrc "
    "data-src-webp data-lazy-src-webp data-webp data-iesrc data-progressive data-normal nitro-lazy-src "
    "lazy-src lazysrc lazyload load-src loadsrc loadlate imgsrc real_src real-src origin-src original-src original src2 "
    "_src file zoomfile "
    # Sizes
    "data-hi-res-src data-high-res-src data-hires data-hires-src data-hisrc data-highres data-low-res-src data-lowsrc "
    "data-src-large data-src-mini data-src-xsmall data-src-mobile data-src-tablet data-src-desktop data-mobile-src "
    "data-tablet-src data-desktop-src data-src-retina data-src2x data-retina data-retina-src data-at2x data-2x data-rjs "
    "data-full data-fullsrc data-full-url data-fullsize data-full-size-image-url data-large data-large-src data-large-file "
    "data-large_image data-image-large-src data-medium-file data-small data-thumb data-thumb-src data-thumb-url data-thumb_url "
    "data-thumbnail data-thumbnail-src data-zoom data-zoom-src data-zoom-image data-magnify-src data-mfp-src "
    # Images
    "data-img data-img-src data-img-url data-imgsrc data-imgurl data-image data-image-src data-image-url data-imageurl "
    "data-pin-media data-exthumbimage data-external-thumb-image data-featherlight data-cover data-photo data-picture "
    "data-placeholder data-interchange data-sources data-responsive data-gif data-gifsrc "
    # Backgrounds
    "data-bg data-bg-src data-bg-img data-bg-image data-bgimage data-bg-url data-bg-lazy data-setbg data-set-bg "
    "data-slide-bg data-bg-hidpi data-bg-multi data-bg-multi-hidpi "
    "data-bg-webp data-bg-mobile data-bg-desktop data-bkg data-back data-back-webp data-background data-background-image "
    "data-backgroundimage data-background-src data-background-url data-lazy-bg data-lazy-background "
    "data-lazy-background-image data-flickity-bg-lazyload data-layzr-bg data-echo-background data-loadimage-background "
    "data-parallax-image data-parallax-src "
    # Videos, sounds, scripts
    "data-poster data-poster-src data-poster-url data-poster-image data-lazy-poster data-video data-video-src data-video-url "
    "data-video-mp4 data-video-webm data-mp4 data-webm data-audio-src data-script data-lazy-script"
)
#: SVG's attributes that may refer to another file by `url()`. Browsers read no other file for `fill` and `stroke`.
_SVG_STYLES = "clip-path cursor filter marker marker-start marker-mid marker-end mask"

#: The event handlers of HTML, and of old browsers (https://html.spec.whatwg.org/#event-handlers-on-elements,-document-objects,-and-window-objects).
_HANDLERS = (
    "onabort onafterprint onauxclick onbeforeprint onbeforetoggle onbeforeunload onblur oncancel oncanplay onchange onclick "
    "onclose oncontextmenu oncopy oncut ondblclick ondrag ondragend ondragenter ondragleave ondragover ondragstart ondrop "
    "onended onerror onfocus onfocusin onfocusout onhashchange oninput oninvalid onkeydown onkeypress onkeyup onload "
    "onloadeddata onloadedmetadata onloadstart onmessage onmousedown onmouseenter onmouseleave onmousemove onmouseout "
    "onmouseover onmouseup onmousewheel onpagehide onpageshow onpaste onplay onpointerdown onpointerup onpopstate "
    "onreadystatechange onreset onresize onscroll onsearch onselect onselectstart onshow onsubmit ontoggle ontouchend "
    "ontouchstart onunload onwheel"
)

#: Candidates of one attribute that are read.
MAX_CANDIDATES = 1000


class AttributeRule(NamedTuple):
    """The rule for an attribute that any element may have."""

    hop: str
    context: str
    urls: Callable[[str], Iterable[str]]  #: of its value


#: Element -> its attributes with one URL each: name, hop, context.
Elements = Mapping[str, tuple[tuple[str, str, str], ...]]

#: How an order names an attribute: of any element, or of one; as in the contexts of crawl.log.
_ATTRIBUTE_NAME = re.compile(r"(?:([a-z][a-z0-9_.-]{0,63})/@|@)?([a-z_:][a-z0-9_.:-]{0,63})")


def named_attribute(text: str) -> tuple[str, str] | None:
    """The element ("": any) and the attribute of `attribute`, `@attribute` or `element/@attribute`; None for any other text."""
    named = _ATTRIBUTE_NAME.fullmatch(text.strip().lower())
    return None if named is None else (named[1] or "", named[2])


def element_attributes(options: ExtractOptions) -> Elements:
    """The attributes that belong to an element, with those of the order."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for table, hop in ((_EMBEDDING, EMBED), (_LINKING, NAVIGATION)):
        for tag, names in table.items():
            found.setdefault(tag, []).extend((name, hop, f"{tag}/@{name}") for name in names)
    for tag, name, hop in _ordered(options):
        if tag:
            found.setdefault(tag, []).append((name, hop, f"{tag}/@{name}"))
    return MappingProxyType({tag: tuple(rows) for tag, rows in found.items()})


def global_attributes(options: ExtractOptions) -> Mapping[str, AttributeRule]:
    """The attributes that any element may have, by name, with those of the order."""
    readers: dict[str, tuple[str, Callable[[str], Iterable[str]]]] = {
        name: (hop, one_or_more) for name, hop in _GLOBAL.items()
    }
    if options.css:
        readers |= dict.fromkeys(_SVG_STYLES.split(), (EMBED, _css_urls))
    if options.data_attributes:
        readers |= dict.fromkeys(_LATE.split(), (EMBED, _late_urls))
        readers |= dict.fromkeys(_LATE_SETS.split(), (EMBED, _late_candidates))
        readers |= dict.fromkeys(_LATE_IF_LIKELY.split(), (EMBED, _likely_late_urls))
    if options.speculative:
        readers |= dict.fromkeys(_HANDLERS.split(), (SPECULATIVE, script_urls))
        readers |= {"value": (SPECULATIVE, _if_likely), "content": (SPECULATIVE, _if_likely)}
        readers |= {"flashvars": (SPECULATIVE, flash_variables)}
    readers |= {name: (hop, _late_urls) for tag, name, hop in _ordered(options) if not tag}
    return MappingProxyType({name: AttributeRule(hop, f"@{name}", urls) for name, (hop, urls) in readers.items()})


def _ordered(options: ExtractOptions) -> Iterator[tuple[str, str, str]]:
    """Element, attribute and hop of what the order adds."""
    for texts, hop in ((options.embed_attributes, EMBED), (options.link_attributes, NAVIGATION)):
        for text in texts:
            if (named := named_attribute(text)) is not None:
                yield (*named, hop)


def element_links(tag: str, rows: Iterable[tuple[str, str, str]], attributes: Attributes) -> list[Reference]:
    """The URLs of an element that the table has, without empty ones and parts of the page (`#id`)."""
    found = [
        (text, hop, context)
        for name, hop, context in rows
        if (text := attributes.get(name)) and not text.startswith("#")
    ]
    if candidates := attributes.get("srcset"):
        found += [(url, EMBED, f"{tag}/@srcset") for url in islice(srcset_urls(candidates), MAX_CANDIDATES)]
    return found


def custom_element_links(tag: str, attributes: Attributes) -> list[Reference]:
    """The URLs of an element that the page defines itself, such as `<amp-img src=…>`."""
    return element_links(tag, [(name, EMBED, f"{tag}/@{name}") for name in ("src", "poster")], attributes)


def global_attribute_links(attributes: Attributes, rows: Mapping[str, AttributeRule]) -> Iterator[Reference]:
    """The URLs of attributes that any element may have."""
    for name, text in attributes.items():
        if text and text[0] != "#" and (row := rows.get(name)) is not None:
            for url in islice(row.urls(text), MAX_CANDIDATES):
                yield url, row.hop, row.context


#: A list of URLs in the place of one, or one as in a `srcset`. A URL may hold commas and, as browsers read it, spaces.
_LISTED = re.compile(
    r",(?:[\t\n\f\r ]|$)|[\t\n\f\r ]\d+(?:\.\d+)?[wx][\t\n\f\r ]*$|^https?://[^\t\n\f\r ]*?,https?://", re.ASCII
)
#: A comma between absolute URLs, without the space of a `srcset`.
_BEFORE_URL = re.compile(r",(?=https?://)")
#: A value that is CSS.
_CSS_VALUE = re.compile(r"(?:url|image-set)\(", re.IGNORECASE)
#: Items of a list in brackets without quotes: `[a.jpg, small], [b.jpg, large]`.
_ITEM = re.compile(r"[^\s,\[\]{}]++")


def one_or_more(text: str) -> Iterable[str]:
    """The URLs of an attribute for one URL, which may hold a list."""
    return islice(srcset_urls(_BEFORE_URL.sub(", ", text)), MAX_CANDIDATES) if _LISTED.search(text) else (text,)


def _late_urls(text: str) -> Iterable[str]:
    """The URLs of a lazy loader's attribute: one, a list, CSS, or JSON."""
    if "(" in text and _CSS_VALUE.search(text):
        return _css_urls(text)
    if text.lstrip()[:1] in ("[", "{"):
        return script_urls(text) if '"' in text or "'" in text else filter(is_likely, _ITEM.findall(text))
    return one_or_more(text)


def _late_candidates(text: str) -> Iterable[str]:
    """The URLs of a `srcset`; also of several, for several media (`a.jpg [(max-width: 9px)] | b.jpg`), and of CSS."""
    if "(" in text and _CSS_VALUE.search(text):
        return _css_urls(text)
    return chain.from_iterable(map(srcset_urls, text.split(" | "))) if " | " in text else srcset_urls(text)


def _likely_late_urls(text: str) -> Iterable[str]:
    """The URLs of a lazy loader's attribute that look like URLs; in CSS, all of them."""
    found = _late_urls(text.strip())
    return found if "(" in text and _CSS_VALUE.search(text) else filter(is_likely, found)


def _css_urls(text: str) -> Iterable[str]:
    return (url for url, _, _ in css_links(text))


def script_urls(text: str) -> Iterable[str]:
    """The strings of a script or of a JSON text that look like URLs."""
    return (url for url, _, _ in speculative_links(text))


def _if_likely(text: str) -> Iterable[str]:
    return (text,) if is_likely(text) else ()


def flash_variables(text: str) -> Iterable[str]:
    """The values of `name=value&…` that look like URLs."""
    return filter(is_likely, (unquote(pair.partition("=")[2]) for pair in text.split("&")))


#: Commas and spaces before a candidate, then its URL, up to the next space.
_URL = re.compile(r"[\t\n\f\r ,]*+([^\t\n\f\r ]++)")
#: Its descriptors, up to a comma outside parentheses.
_DESCRIPTORS = re.compile(r"(?:[^(,]++|\([^)]*+\)?)*+,?")


def srcset_urls(text: str) -> Iterator[str]:
    """The URLs of a `srcset`, in order, as written. Cost: linear. https://html.spec.whatwg.org/#parsing-a-srcset-attribute"""
    position = 0
    while (url := _URL.match(text, position)) is not None:
        position = url.end()
        if url[1].endswith(","):
            if bare := url[1].rstrip(","):
                yield bare
            continue
        yield url[1]
        descriptors = _DESCRIPTORS.match(text, position)
        position = descriptors.end() if descriptors is not None else len(text)
