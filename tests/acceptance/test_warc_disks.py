"""WARC files on a disk of their own that is full, read-only or short of room: one line, exit 3, resumable, nothing lost."""

from tests.acceptance.archive import archived
from tests.acceptance.smalldisk import FILL, needs_small_disk, on_small_disk, said

WARC = f"--warc --limit 0 {FILL}"


def on_warc_disk(tmp_path, pages, size, story):
    """Run a story as `on_small_disk` does, with the job's WARC folder as the small disk; return its archive at the end."""
    story = f"""crawl begun "{WARC} --limit 3"
mkdir begun && mv disk/job/warc/* begun && mount -t tmpfs -o size={size} tmpfs disk/job/warc && mv begun/* disk/job/warc
{story}
cp -r disk/job job"""
    on_small_disk(tmp_path, pages, "3g", story)
    assert said(tmp_path, "begun") == (0, "")
    return archived(tmp_path / "job")


@needs_small_disk
def test_a_full_warc_disk_ends_with_3_and_the_job_resumes(tmp_path):
    """Pages that did not fit were not acknowledged: with room, they are fetched and written."""
    story = f'crawl first "{WARC}"; mount -o remount,size=900m disk/job/warc; crawl second "{WARC}"'
    found = on_warc_disk(tmp_path, 150, "100k", story)
    code, line = said(tmp_path, "first")
    assert code == 3
    assert "disk/job/warc" in line
    assert "no space left on device" in line
    assert said(tmp_path, "second") == (0, "")
    assert len({read.url for read in found.answers}) >= 151


@needs_small_disk
def test_a_read_only_warc_folder_ends_with_3_and_the_job_resumes(tmp_path):
    """One line that names it, whatever the other folders allow."""
    story = (
        f'mount -o remount,ro disk/job/warc; crawl first "{WARC}"; '
        f'mount -o remount,rw disk/job/warc; crawl second "{WARC}"'
    )
    on_warc_disk(tmp_path, 30, "900m", story)
    code, line = said(tmp_path, "first")
    assert code == 3
    assert "disk/job/warc" in line
    assert "read-only" in line
    assert said(tmp_path, "second") == (0, "")


@needs_small_disk
def test_the_disk_of_the_warc_files_is_watched(tmp_path):
    """It has less than min_free_disk, the job's own has more: the crawl waits, says which, and goes on when there is room."""
    story = (
        'crawl first "--warc --limit 0 -s limits.min_free_disk=1GB" & '
        "until grep -q min_free_disk first.out; do sleep 0.05; done; "
        "mount -o remount,size=3g disk/job/warc; wait $!"
    )
    on_warc_disk(tmp_path, 30, "900m", story)
    assert said(tmp_path, "first") == (0, "")
    out = (tmp_path / "first.out").read_text()
    assert "job/warc" in out
    assert "resumed" in out
