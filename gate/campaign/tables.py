"""The tables of a ledger, in SQL.

What a report says of all results is summed up as they are written, in the same transaction: so a
report of a million results reads a few hundred rows, and those that say more than a sum.
"""

APPLICATION = 0x5343_4850  # "SCHP", in the header of the file
SCHEMA = 2

_CONTENT = """
CREATE TABLE campaigns (content TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE items (id TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE results (
    item TEXT PRIMARY KEY REFERENCES items, content TEXT NOT NULL,
    seconds REAL NOT NULL, worker TEXT NOT NULL, ended TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) WITHOUT ROWID;
CREATE INDEX failing ON results (item) WHERE json_extract(content, '$.failures') IS NOT NULL;
CREATE INDEX failed ON results (item) WHERE json_extract(content, '$.failed') IS NOT NULL;
CREATE INDEX proving ON results (item) WHERE json_extract(content, '$.says') IS NOT NULL;
CREATE TABLE conflicts (
    item TEXT NOT NULL REFERENCES items, content TEXT NOT NULL, PRIMARY KEY (item, content)
) WITHOUT ROWID;
CREATE TABLE findings (
    question TEXT PRIMARY KEY, content TEXT
) WITHOUT ROWID;
"""
_SUMS = """
CREATE TABLE ran (
    engine TEXT PRIMARY KEY, items INTEGER NOT NULL, broken_off INTEGER NOT NULL,
    scenarios INTEGER NOT NULL, steps INTEGER NOT NULL, seconds REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE witnesses (
    system TEXT, revision TEXT, rule TEXT, times INTEGER NOT NULL,
    PRIMARY KEY (system, revision, rule)
) WITHOUT ROWID;
CREATE TABLE near_misses (
    system TEXT, revision TEXT, "limit" TEXT, "left" INTEGER NOT NULL,
    PRIMARY KEY (system, revision, "limit")
) WITHOUT ROWID;
"""
_ABOUT = "json_extract(items.content, '$.system'), json_extract(items.content, '$.revision')"
_ROWS = "results JOIN items ON items.id = results.item"


def _summed(which: str) -> tuple[str, ...]:
    """Statements that add the results of this SQL condition to the sums."""
    return (
        f"""INSERT INTO ran
        SELECT json_extract(items.content, '$.engine'), count(*),
            count(json_extract(results.content, '$.complete')),
            sum(coalesce(json_extract(results.content, '$.scenarios'), 0)),
            sum(coalesce(json_extract(results.content, '$.steps'), 0)), sum(seconds)
        FROM {_ROWS} WHERE {which} GROUP BY 1
        ON CONFLICT DO UPDATE SET items = items + excluded.items,
            broken_off = broken_off + excluded.broken_off,
            scenarios = scenarios + excluded.scenarios, steps = steps + excluded.steps,
            seconds = seconds + excluded.seconds""",
        f"""INSERT INTO witnesses
        SELECT {_ABOUT}, exercised.key, sum(exercised.value)
        FROM {_ROWS}, json_each(results.content, '$.exercised') AS exercised
        WHERE {which} GROUP BY 1, 2, 3
        ON CONFLICT DO UPDATE SET times = times + excluded.times""",
        f"""INSERT INTO near_misses
        SELECT {_ABOUT}, miss.key, min(json_extract(miss.value, '$.left'))
        FROM {_ROWS}, json_each(results.content, '$.near') AS miss
        WHERE {which} GROUP BY 1, 2, 3
        ON CONFLICT DO UPDATE SET "left" = min("left", excluded."left")""",
    )


TABLES = (
    _CONTENT + _SUMS + f"CREATE TRIGGER sums AFTER INSERT ON results BEGIN"
    f" {'; '.join(_summed('results.item = new.item'))}; END;\n"
)
# After a result has taken the place of another, whose share in the sums is not known.
SUM_AGAIN = (
    *("DELETE FROM ran", "DELETE FROM witnesses", "DELETE FROM near_misses"),
    *_summed("true"),
)
