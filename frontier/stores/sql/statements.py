"""The statements: Core expressions for both engines. `execution` compiles them and brings them to the driver.

Parameters are given in the order in which the text has them: that of SET, which is the order of the table's columns, then that
of WHERE, then LIMIT. A comment names them where this is not plain.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    CompoundSelect,
    Delete,
    Select,
    Table,
    Update,
    and_,
    case,
    delete,
    func,
    join,
    null,
    or_,
    outerjoin,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.dialects.sqlite import insert  # has ON CONFLICT, which `postgres` takes as well

from anabranch.frontier.records import OutcomeKind
from anabranch.frontier.stores import sql
from anabranch.frontier.stores.contract import Counters, GateRow, Standing
from anabranch.frontier.stores.sql.execution import AllRows, ManyRows, Parameter, ServerTime, Types, given_rows

url, done, failure, seen, lane = sql.URL.c, sql.DONE.c, sql.FAILURE.c, sql.SEEN.c, sql.LANE.c
queue, gate, parcel, page = sql.QUEUE.c, sql.GATE.c, sql.PARCEL.c, sql.PAGE.c
share, worker, link, crawl = sql.SHARE.c, sql.WORKER.c, sql.LINK.c, sql.CRAWL.c

S = TypeVar("S", Select[Any], Update, Delete)


def _types(columns: Iterable[Column[Any]]) -> Types:
    return tuple(column.type for column in columns)


def _inserting(table: Table, changed: Iterable[str] | None = None) -> ManyRows:
    """Add rows to a table. A row whose key is there already changes these columns of it; None: it is an error.

    The result counts the rows that were added, and with `changed` those that were changed, too.
    """
    types = _types(table.c)
    statement = insert(table).from_select([*table.c.keys()], AllRows(types))
    if changed is None:
        return ManyRows(statement, types, may_repeat=False, copied_to=table.name)
    key, new = [column.name for column in table.primary_key], {name: statement.excluded[name] for name in changed}
    if not new:
        return ManyRows(statement.on_conflict_do_nothing(index_elements=key), types)
    return ManyRows(statement.on_conflict_do_update(index_elements=key, set_=new), types)


def _listed(statement: S, *columns: Column[Any]) -> ManyRows:
    """Restrict a statement to the rows in which these columns are as one of the given rows has them."""
    types = _types(columns)
    asked: ColumnElement[Any] = columns[0] if len(columns) == 1 else tuple_(*columns)
    return ManyRows(statement.where(asked.in_(select(given_rows(types, "listed")))), types)


def _after(*columns: Column[Any]) -> ColumnElement[bool]:
    """Come after a place in this order."""
    if len(columns) == 1:
        return columns[0] > Parameter(columns[0].name)
    return tuple_(*columns) > tuple_(*[Parameter(column.name) for column in columns])


def _limit() -> Parameter:
    return Parameter("limit")


@lru_cache
def repeated(statement: Select[Any], times: int) -> Select[Any] | CompoundSelect[Any]:
    """A statement so many times in one, with the parameters of each in turn; their order is not kept.

    Half the price of one by one. Ask for few numbers of times: each is a text of its own.
    """
    return statement if times == 1 else union_all(*[select(statement.subquery("asked"))] * times)


# Rows of URLs

#: A `Row`, then the URL of `via`. (queue, gate, end of precedences, limit). One seek in the clustered key.
_HEAD = select(sql.URL, done.url).select_from(outerjoin(sql.URL, sql.DONE, done.ordinal == url.via))
HEADS = (
    _HEAD.where(url.queue == Parameter("queue"), url.gate == Parameter("gate"), url.precedence < Parameter("end"))
    .order_by(url.precedence, url.ordinal)
    .limit(_limit())
)
#: The same for all rows after a place.
QUEUED = _HEAD.where(_after(*sql.URL.primary_key)).order_by(*sql.URL.primary_key).limit(_limit())
_WAITING = select(sql.URL).where(url.due_s.is_not(None), _after(url.due_s, url.ordinal))
RETRIES = _WAITING.order_by(url.due_s, url.ordinal).limit(_limit())
_DONE = select(done.ordinal, done.url, done.key, done.status, done.outcome, done.attempts)
ENDED = _DONE.where(_after(done.ordinal)).order_by(done.ordinal).limit(_limit())

INSERT_URL = _inserting(sql.URL)
DELETE_URL = _listed(delete(sql.URL), url.queue, url.gate, url.precedence, url.ordinal)
INSERT_DONE = _inserting(sql.DONE)
INSERT_FAILURE = _inserting(sql.FAILURE)
_has_failed = done.outcome == OutcomeKind.FAILED.value
#: Those that have failed, whatever the rows given.
DELETE_FAILED = _listed(delete(sql.DONE).where(_has_failed), done.ordinal)
DELETE_FAILURES = _listed(delete(sql.FAILURE), failure.ordinal)
#: `FailedRecord`s. (ordinal, limit).
FAILED_AFTER = (
    select(
        *(done.ordinal, done.url, done.key, done.status),
        *(failure.hops, failure.via, failure.precedence, failure.ended_s, failure.payload),
    )
    .select_from(outerjoin(sql.DONE, sql.FAILURE, failure.ordinal == done.ordinal))
    .where(_has_failed, _after(done.ordinal))
    .order_by(done.ordinal)
    .limit(_limit())
)
FAILED_BY_STATUS = select(done.status, func.count()).where(_has_failed).group_by(done.status)
#: Counts only the rows it added: fewer than were given means duplicates.
ENTER_SEEN = _inserting(sql.SEEN, changed=())
REPLACE_SEEN = _inserting(sql.SEEN, changed=["ordinal"])

# One URL

SEEN = _listed(select(sql.SEEN), seen.fp)
DONE = _listed(_DONE, done.ordinal)
_in_lane = and_(url.queue == Parameter("queue"), url.gate == Parameter("gate"))
NEXT_PRECEDENCE = select(func.min(url.precedence)).where(_in_lane, url.precedence > Parameter("precedence"))
URL_AT = select(sql.URL).where(_in_lane, url.precedence == Parameter("precedence"), url.ordinal == Parameter("ordinal"))
URL_ANYWHERE = select(sql.URL).where(url.ordinal == Parameter("ordinal")).limit(1)
#: No index has the URL, see `reading.of_url`. The latest come first. (URL, limit).
URL_OF = select(sql.URL).where(url.url == Parameter("url")).order_by(url.ordinal.desc()).limit(_limit())
DONE_OF = _DONE.where(done.url == Parameter("url")).order_by(done.ordinal.desc()).limit(_limit())
#: Keys of rows above an ordinal, with their places and in that order.
QUEUED_KEYS = (
    select(url.key, url.url, *sql.URL.primary_key)
    .where(_after(*sql.URL.primary_key), url.ordinal > Parameter("above"))
    .order_by(*sql.URL.primary_key)
    .limit(_limit())
)
#: Places and URLs of rows. (pattern, place to continue from, limit).
PLACES_OF_URLS_LIKE = (
    select(*sql.URL.primary_key, url.url)
    .where(url.url.like(Parameter("pattern")), _after(*sql.URL.primary_key))
    .order_by(*sql.URL.primary_key)
    .limit(_limit())
)
#: (queue, gate, place).
MOVE_URL = (
    update(sql.URL)
    .values(queue=Parameter("queue"), gate=Parameter("gate"))
    .where(and_(*[column == Parameter(column.name) for column in sql.URL.primary_key]))
)
ENDED_KEYS = select(done.key, done.url, done.ordinal).where(_after(done.ordinal)).order_by(done.ordinal).limit(_limit())

# Lanes

READ_LANES = _listed(
    select(lane.queue, lane.gate, lane.turn, lane.count, lane.waiting, lane.shelved), lane.queue, lane.gate
)
PUT_LANES = _inserting(sql.LANE, changed=["turn", "count", "waiting", "shelved", "servable"])
#: For lanes that exist and keep their place in line: no index is touched.
COUNT_LANES = _inserting(sql.LANE, changed=["count", "waiting"])
DELETE_LANES = _listed(delete(sql.LANE), lane.queue, lane.gate)
_LANE = select(lane.queue, lane.gate, lane.turn, lane.count, lane.waiting)
#: A gate's line after a turn. (gate, turn, limit).
LINE = (
    _LANE.where(lane.gate == Parameter("gate"), lane.turn > Parameter("turn"), lane.servable == 1)
    .order_by(lane.turn)
    .limit(_limit())
)
LANES_OF_QUEUE = (
    _LANE.where(lane.queue == Parameter("queue"), lane.gate >= Parameter("gate"), lane.count > 0)
    .order_by(lane.gate)
    .limit(_limit())
)
ROWS_OF_QUEUE = select(func.coalesce(func.sum(lane.count), 0)).where(lane.queue == Parameter("queue"))
#: (standing, standing, queue).
SHELVE = (
    update(sql.LANE)
    .values(
        shelved=Parameter("standing"),
        servable=case((and_(lane.count > lane.waiting, Parameter("standing", lane.shelved.type) == 0), 1), else_=0),
    )
    .where(lane.queue == Parameter("queue"))
)

# Queues

#: A `QueueRow`, then rows, waiting rows, lanes that have rows.
_SUMS = (
    select(
        sql.QUEUE,
        func.coalesce(func.sum(lane.count), 0),
        func.coalesce(func.sum(lane.waiting), 0),
        func.count(lane.gate),
    )
    .select_from(outerjoin(sql.QUEUE, sql.LANE, and_(lane.queue == queue.id, lane.count > 0)))
    .group_by(queue.id)
)
QUEUE = select(sql.QUEUE).where(queue.id == Parameter("id"))
QUEUES_BY_ID = _listed(select(sql.QUEUE), queue.id)
QUEUE_FACTS = _SUMS.where(queue.id == Parameter("id"))
_SUMS_FROM = _SUMS.where(queue.id >= Parameter("first")).order_by(queue.id).limit(_limit())
#: Those that have rows or are not open. (first id, limit).
QUEUES = _SUMS_FROM.having(or_(queue.standing != 0, func.count(lane.gate) > 0))
OPEN_QUEUES = _SUMS_FROM.where(queue.standing == 0).having(func.count(lane.gate) > 0)
#: (standing, first id, limit), for queues that are not open: found by their own index.
CLOSED_QUEUES = (
    _SUMS.where(queue.standing != 0, queue.standing == Parameter("standing"), queue.id >= Parameter("first"))
    .order_by(queue.id)
    .limit(_limit())
)
_rows = func.sum(lane.count).label("rows")
LONGEST = (
    select(lane.queue, _rows)
    .where(lane.count > 0)
    .group_by(lane.queue)
    .order_by(_rows.desc(), lane.queue)
    .limit(_limit())
)
_sums = (
    select(lane.queue, func.sum(lane.count - lane.waiting).label("ready"), func.sum(lane.waiting).label("waiting"))
    .group_by(lane.queue)
    .subquery("sums")
)
_states = (
    select(
        case(
            (queue.standing == int(Standing.PAUSED), "paused"),
            (queue.standing == int(Standing.RETIRED), "retired"),
            (_sums.c.ready > 0, "inactive"),
            (_sums.c.waiting > 0, "snoozed"),
            else_="empty",
        ).label("state")
    )
    .select_from(outerjoin(sql.QUEUE, _sums, _sums.c.queue == queue.id))
    .subquery("states")
)
TALLY = select(_states.c.state, func.count()).group_by(_states.c.state)
ANY_CLOSED = select(queue.id).where(queue.standing != 0).limit(1)
CLOSED = _listed(select(queue.id, queue.standing).where(queue.standing != 0), queue.id)
#: Known ones stay as they are; counts only the rows it added.
NAME_QUEUES = _inserting(sql.QUEUE, changed=())
_QUEUE_CHANGES = _types((queue.id, queue.precedence, queue.spent, queue.budget, queue.successes, queue.errors))
_new = given_rows(_QUEUE_CHANGES, "new")
PUT_QUEUES = ManyRows(
    update(sql.QUEUE)
    .values(
        precedence=_new.c.column2,
        spent=_new.c.column3,
        budget=_new.c.column4,
        successes=_new.c.column5,
        errors=_new.c.column6,
    )
    .where(queue.id == _new.c.column1),
    _QUEUE_CHANGES,
)
STANDING = select(queue.standing).where(queue.id == Parameter("id"))
SET_STANDING = update(sql.QUEUE).values(standing=Parameter("standing")).where(queue.id == Parameter("id"))

# Gates

_GATE = select(*[gate[name] for name in GateRow._fields])
GATE = _GATE.where(gate.id == Parameter("id"))
GATES_BY_ID = _listed(_GATE, gate.id)
NAME_GATES = _inserting(sql.GATE, changed=())
#: The key and the columns after the facts keep their values.
PUT_GATES = _inserting(sql.GATE, changed=GateRow._fields[2:])
_TURN_OF_GATE = _types((gate.id, gate.turn))
_new = given_rows(_TURN_OF_GATE, "new")
#: The window of a gate that is not held: the smaller turn counts, the time stays.
WAKE_GATES = ManyRows(
    update(sql.GATE)
    .values(turn=_new.c.column2)
    .where(gate.id == _new.c.column1, gate.held == 0, or_(gate.turn.is_(None), gate.turn > _new.c.column2)),
    _TURN_OF_GATE,
)
_LEFT_GATE = _types((gate.id, gate.turn, gate.wakes_s))
_new = given_rows(_LEFT_GATE, "new")
LEAVE_GATES = ManyRows(
    update(sql.GATE).values(held=0, turn=_new.c.column2, wakes_s=_new.c.column3).where(gate.id == _new.c.column1),
    _LEFT_GATE,
)
_of_share = gate.share == Parameter("share")
_closed = and_(gate.held == 0, gate.wakes_s.is_not(None), _of_share)
#: Gates of one share that are closed no longer. (share, now, limit).
DUE_GATES = select(gate.id).where(_closed, gate.wakes_s <= Parameter("now_s")).order_by(gate.wakes_s).limit(_limit())
#: Gates of one share. (share, limit).
NEXT_GATES = (
    _GATE.add_columns(gate.turn)
    .where(gate.held == 0, gate.turn.is_not(None), gate.wakes_s.is_(None), _of_share)
    .order_by(gate.turn)
    .limit(_limit())
)
NEXT_WAKE = select(func.min(gate.wakes_s)).where(_closed)
BLOCKED_GATES = select(gate.id).where(gate.blocked_until_s > Parameter("now_s"))
HOLD_GATES = _listed(update(sql.GATE).values(held=1, turn=null(), wakes_s=null()), gate.id)
REST_GATES = _listed(update(sql.GATE).values(turn=null()), gate.id)
_first_turn = (
    select(func.min(lane.turn)).where(lane.gate == gate.id, lane.servable == 1).correlate(sql.GATE).scalar_subquery()
)
#: Gates of one share that an owner held when it ended.
FREE_HELD = update(sql.GATE).values(held=0, turn=_first_turn, wakes_s=null()).where(gate.held == 1, _of_share)
#: Gates at which a queue can be served again.
WAKE_GATES_OF_QUEUE = (
    update(sql.GATE)
    .values(turn=_first_turn)
    .where(
        gate.held == 0,
        gate.id.in_(select(lane.gate).where(lane.queue == Parameter("queue"), lane.servable == 1)),
        or_(gate.turn.is_(None), gate.turn > _first_turn),
    )
)


@lru_cache
def open_gates(shares: int) -> Update:
    """Have the `DUE_GATES` of so many shares join the open ones."""
    return update(sql.GATE).values(wakes_s=null()).where(gate.id.in_(repeated(DUE_GATES, shares)))


# Links on their way between the shares of a job, and pages of other shares, as earlier versions kept them

#: (share, number, limit).
PARCELS = (
    select(sql.PARCEL).where(_after(parcel.share, parcel.number)).order_by(parcel.share, parcel.number).limit(_limit())
)
PAGES = _listed(select(sql.PAGE), page.ordinal)

# Shares and their workers. By the server's clock: on one machine, the machine's

SERVER_TIME = select(ServerTime())
INSERT_SHARE = _inserting(sql.SHARE)
_of_epoch = worker.epoch == Parameter("epoch")
_lives = worker.until_s > 0
_is_late = worker.until_s < ServerTime()
#: (epoch, name, token, session, time to live).
JOIN = insert(sql.WORKER).values(
    {
        **{name: Parameter(name) for name in ("epoch", "name", "token", "session")},
        "joined_s": ServerTime(),
        "until_s": ServerTime() + Parameter("ttl_s"),
        "mark": "",
        **dict.fromkeys(("batch", *Counters._fields), 0),
    }
)
#: (time to live, epoch, end of the lease as the worker left it). The lease of all shares of a worker, and the fence of its
#: commits: it changes nothing if another worker has ended the lease, or if the row is older than the worker's last commit.
RENEW = (
    update(sql.WORKER)
    .values(until_s=ServerTime() + Parameter("ttl_s"))
    .where(_of_epoch, _lives, worker.until_s == Parameter("until_s"))
    .returning(worker.until_s)
)
LEASE = select(worker.until_s).where(_of_epoch)
#: Each time that a worker has joined, with the number of its last batch.
JOININGS = select(worker.epoch, worker.joined_s, worker.batch).order_by(worker.epoch)
PUT_SESSION = update(sql.WORKER).values(session=Parameter("session")).where(_of_epoch)
#: (batch, last_ordinal … retried, epoch).
PUT_COUNTERS = (
    update(sql.WORKER).values({name: Parameter(name) for name in ("batch", *Counters._fields)}).where(_of_epoch)
)
PUT_MARK = update(sql.WORKER).values(mark=Parameter("mark")).where(_of_epoch)
MARK = select(worker.mark).where(_of_epoch)
#: Workers that have not left, by epoch: whether their time is up.
LIVE_WORKERS = (
    select(worker.epoch, worker.name, worker.token, worker.session, _is_late).where(_lives).order_by(worker.epoch)
)
#: All that have not left; those whose time is up; (epoch): one of either.
BURY_WORKERS = update(sql.WORKER).values(until_s=0).where(_lives)
BURY_LATE_WORKERS = BURY_WORKERS.where(_is_late)
END_WORKER = BURY_WORKERS.where(_of_epoch)
BURY_WORKER = END_WORKER.where(_is_late)
_FREE = update(sql.SHARE).values(epoch=null(), leaving=0)
#: Shares of a worker that died: its fetches may have lasted until now.
_FREE_OF_DEAD = _FREE.values(died_s=ServerTime())
#: Before `BURY_LATE_WORKERS`.
FREE_LATE_SHARES = _FREE_OF_DEAD.where(share.epoch.in_(select(worker.epoch).where(_lives, _is_late).with_for_update()))
FREE_LIVE_SHARES = _FREE_OF_DEAD.where(share.epoch.is_not(None))
_held = share.epoch == Parameter("epoch")
FREE_SHARES = _FREE_OF_DEAD.where(_held)
#: Of one that leaves in order.
GIVE_UP_SHARES = _FREE.values(died_s=0).where(_held)
HELD_SHARES = select(share.id, share.leaving, share.died_s).where(_held).order_by(share.id)
#: Without those that another worker is claiming.
UNHELD_SHARES = (
    select(share.id).where(share.epoch.is_(None)).order_by(share.id).limit(_limit()).with_for_update(skip_locked=True)
)
_this = share.id == Parameter("share")
#: (epoch, share).
CLAIM_SHARE = update(sql.SHARE).values(epoch=Parameter("epoch"), leaving=0).where(_this, share.epoch.is_(None))
#: (share, epoch).
LEAVE_SHARE = update(sql.SHARE).values(leaving=1).where(_this, _held)
#: Given back in order. (share, epoch).
RELEASE_SHARE = _FREE.values(died_s=0).where(_this, _held, share.leaving == 1)
#: Rows of shares by the standing of their queues: (standing, rows, waiting ones).
ROWS_OF_SHARES = _listed(
    select(lane.shelved, func.sum(lane.count), func.sum(lane.waiting))
    .select_from(join(sql.LANE, sql.GATE, gate.id == lane.gate))
    .group_by(lane.shelved),
    gate.share,
)
INSERT_LINK = _inserting(sql.LINK)
DELETE_LINKS = _listed(delete(sql.LINK), link.share, link.ordinal)
#: Links that are read at a time.
LINKS_AT_ONCE = 2000
LINKS = _listed(select(sql.LINK).order_by(link.ordinal).limit(LINKS_AT_ONCE), link.share)
ALL_LINKS = select(sql.LINK)
#: Links that may have a key. (key, URL).
LINKS_OF = ALL_LINKS.where(or_(link.key == Parameter("key"), link.url == Parameter("url")))
#: All of the job in one statement, so as of one moment.
JOB_COUNTS = select(
    func.coalesce(func.max(worker.last_ordinal), 0),
    *[func.coalesce(func.sum(worker[name]), 0) for name in Counters._fields[1:]],
    select(func.count()).select_from(sql.LINK).scalar_subquery(),
)
WORKER_COUNTERS = select(*[worker[name] for name in Counters._fields]).where(_of_epoch)
WORKERS = (
    select(
        worker.epoch,
        worker.name,
        select(func.count()).where(share.epoch == worker.epoch).correlate(sql.WORKER).scalar_subquery(),
        worker.until_s - ServerTime(),
    )
    .where(_lives)
    .order_by(worker.epoch)
)
#: Waiting rows of the shares of one worker. (epoch, due, ordinal, limit).
RETRIES_OF_SHARES = (
    select(sql.URL)
    .select_from(join(join(sql.URL, sql.GATE, gate.id == url.gate), sql.SHARE, share.id == gate.share))
    .where(_held, share.leaving == 0, url.due_s.is_not(None), _after(url.due_s, url.ordinal))
    .order_by(url.due_s, url.ordinal)
    .limit(_limit())
)

#: Pages that are fetched, by a worker, above an ordinal. (worker, ordinal, limit).
PAGES_OF_WORKER = (
    _DONE.where(done.worker == Parameter("worker"), _after(done.ordinal), done.outcome == OutcomeKind.DONE.value)
    .order_by(done.ordinal)
    .limit(_limit())
)
DELETE_DONE = _listed(delete(sql.DONE), done.ordinal)
#: (pages, epoch).
UNCOUNT_DONE = update(sql.WORKER).values(done=worker.done - Parameter("pages")).where(_of_epoch)
EPOCHS_OF = (
    select(worker.epoch, worker.until_s > ServerTime()).where(worker.name == Parameter("name")).order_by(worker.epoch)
)

# The whole

FACTS = select(sql.CRAWL)
FACT = select(crawl.value).where(crawl.name == Parameter("name"))
#: Locked until the transaction ends, where transactions do not exclude each other.
FACT_FOR_UPDATE = FACT.with_for_update()
FACT_FOR_SHARE = FACT.with_for_update(read=True)
PUT_FACTS = _inserting(sql.CRAWL, changed=["value"])

#: A clock that went back: every time by so many seconds earlier. (seconds, four times).
MOVE_GATES = (
    update(sql.GATE)
    .values(
        {
            **{
                column.name: case((column > 0, column - Parameter("back_s")), else_=0)
                for column in (gate.rests_until_s, gate.blocked_until_s, gate.troubled_s)
            },
            "wakes_s": gate.wakes_s - Parameter("back_s"),
        }
    )
    .where(or_(gate.rests_until_s > 0, gate.blocked_until_s > 0, gate.troubled_s > 0, gate.wakes_s.is_not(None)))
)
MOVE_RETRIES = update(sql.URL).values(due_s=url.due_s - Parameter("back_s")).where(url.due_s.is_not(None))

# For checks


def _waiting_rows() -> ColumnElement[int]:
    """Count the rows of `url` from a precedence on."""
    return func.coalesce(func.sum(case((url.precedence >= Parameter("waiting"), 1), else_=0)), 0)


COUNT_URLS = select(func.count(), func.max(url.ordinal), _waiting_rows())
COUNT_DONE = select(done.outcome, func.count(), func.max(done.ordinal)).group_by(done.outcome)
COUNT_SEEN = select(func.count()).select_from(sql.SEEN)
COUNT_QUEUES = select(func.count()).select_from(sql.QUEUE)
SUM_LANES = select(func.coalesce(func.sum(lane.count), 0))
COUNT_CLOSED = (
    select(queue.standing, func.sum(lane.count))
    .select_from(join(sql.QUEUE, sql.LANE, lane.queue == queue.id))
    .where(queue.standing != 0)
    .group_by(queue.standing)
)
_counted = (
    select(
        *(lane.queue, lane.gate, lane.count, lane.waiting),
        func.count(url.ordinal).label("held"),
        _waiting_rows().label("held_waiting"),
    )
    .select_from(outerjoin(sql.LANE, sql.URL, and_(url.queue == lane.queue, url.gate == lane.gate)))
    .group_by(lane.queue, lane.gate, lane.count, lane.waiting)
    .subquery("counted")
)
#: A lane with a wrong count. (first precedence of rows that wait).
WRONG_LANE = (
    select(_counted)
    .where(or_(_counted.c.held != _counted.c.count, _counted.c.held_waiting != _counted.c.waiting))
    .limit(1)
)
#: A lane that is in line and should not be, or the other way round.
WRONG_LINE = (
    select(lane.queue, lane.gate, lane.servable)
    .where(lane.servable != case((and_(lane.count > lane.waiting, lane.shelved == 0), 1), else_=0))
    .limit(1)
)
_standing = func.coalesce(queue.standing, 0)
#: A lane with another standing than its queue.
WRONG_SHELF = (
    select(lane.queue, lane.gate, lane.shelved, _standing)
    .select_from(outerjoin(sql.LANE, sql.QUEUE, queue.id == lane.queue))
    .where(lane.shelved != _standing)
    .limit(1)
)

# For tables of all queues and gates (`browse`)

_UNSET = -(1 << 31)  # of a number that goes by the order
BROWSED_QUEUES = select(
    *(queue.id, queue.key, queue.standing, queue.precedence, queue.spent, func.coalesce(queue.budget, _UNSET)),
    *(queue.successes, queue.errors),
).order_by(queue.id)
BROWSED_GATES = select(
    *(gate.id, gate.key, gate.blocked_until_s, gate.rests_until_s, gate.spacing_s, gate.throttle_s, gate.troubles),
    *(func.coalesce(gate.slots, _UNSET), gate.held),
).order_by(gate.id)
BROWSED_LANES = select(lane.queue, lane.gate, lane.count, lane.waiting, lane.servable)
_BROWSED_LANE = (
    select(lane.turn, lane.queue, lane.gate, queue.key, gate.key)
    .select_from(join(join(sql.LANE, sql.QUEUE, queue.id == lane.queue), sql.GATE, gate.id == lane.gate))
    .order_by(lane.turn)
    .limit(_limit())
)
#: (queue, limit), (gate, limit).
LANES_TO_BROWSE_OF_QUEUE = _BROWSED_LANE.where(lane.queue == Parameter("queue"), lane.count > 0)
LANES_TO_BROWSE_OF_GATE = _BROWSED_LANE.where(lane.gate == Parameter("gate"), lane.servable == 1)
#: (queue, gate, limit).
URLS_TO_BROWSE = (
    select(url.url, url.precedence, url.ordinal, url.attempts, url.due_s)
    .where(_in_lane)
    .order_by(url.precedence, url.ordinal)
    .limit(_limit())
)
