"""The tables, and the one rule by which entries are ranked.

An entry is one source on one board; a board is a problem, its file's content, the set of cases, the judge's version,
the device's model and the versions that its speed depends on. Nothing is compared across boards.

- A speedup is the geometric mean over eager. Of an entry's evaluations their logarithms are averaged; the variance of
  the mean comes from their 95% intervals.
- An entry has a rank when evaluations with two seeds agree: all speedups within 5% of each other, or within what their
  intervals explain. Until then it is provisional. One rejection by the same judge takes its rank; a withdrawal, too.
- Entries stand by speedup. One ties with the first of those before it that share a rank when the 95% interval of their
  difference, of the logarithms, has 0 in it: z² = 3.84. Otherwise its rank is its place.
"""

from __future__ import annotations

# "kgat": other programs' files are told by it.
APPLICATION_ID = 0x6B676174

_FIRST = """
CREATE TABLE source (
    sha256 TEXT PRIMARY KEY,
    text BLOB NOT NULL             -- zlib
) WITHOUT ROWID;

CREATE TABLE environment (
    digest TEXT PRIMARY KEY,
    content TEXT NOT NULL          -- JSON
) WITHOUT ROWID;

CREATE TABLE board (
    id INTEGER PRIMARY KEY,
    problem TEXT NOT NULL,
    problem_sha256 TEXT NOT NULL,
    cases TEXT NOT NULL,           -- digest of their names
    judge TEXT NOT NULL,
    device TEXT NOT NULL,
    model TEXT NOT NULL,           -- of the device
    versions TEXT NOT NULL,        -- that speed depends on
    UNIQUE (problem, problem_sha256, cases, judge, device, model, versions)
);

CREATE TABLE evaluation (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,   -- of what was found and where: the same comes in once
    board INTEGER NOT NULL REFERENCES board,
    date TEXT NOT NULL,
    environment TEXT NOT NULL REFERENCES environment,
    submission TEXT NOT NULL,
    source_sha256 TEXT NOT NULL,
    seed TEXT NOT NULL,
    status TEXT NOT NULL,
    reason TEXT,
    ranked INTEGER NOT NULL,       -- has a speedup that is known
    log_speedup REAL,
    variance REAL,                 -- of log_speedup
    log_over_best REAL,
    log_captured REAL,
    log_captured_over_best REAL
);
CREATE INDEX evaluation_board ON evaluation (board, source_sha256);
CREATE INDEX evaluation_source ON evaluation (source_sha256);
CREATE INDEX evaluation_submission ON evaluation (submission);

CREATE TABLE content (
    evaluation INTEGER PRIMARY KEY REFERENCES evaluation,
    json BLOB NOT NULL             -- zlib
);

CREATE TABLE withdrawal (
    source_sha256 TEXT NOT NULL,
    problem TEXT NOT NULL,
    reason TEXT NOT NULL,
    date TEXT NOT NULL,
    PRIMARY KEY (source_sha256, problem)
) WITHOUT ROWID;

CREATE VIEW entry AS
SELECT
    found.*,
    withdrawal.reason AS withdrawn,
    CASE
        WHEN withdrawal.reason IS NOT NULL THEN 'withdrawn'
        WHEN rejections > 0 THEN 'rejected'
        WHEN seeds = 0 THEN 'unranked'
        WHEN seeds = 1 THEN 'provisional'
        WHEN spread > 0.05 AND spread * spread > 2 * 3.84 * widest THEN 'disagrees'
        ELSE 'ranked'
    END AS standing
FROM (
    SELECT
        board, source_sha256,
        max(date) AS date,
        submission,                -- of the latest, as SQLite gives bare columns beside max()
        count(*) AS evaluations,
        count(DISTINCT CASE WHEN ranked THEN seed END) AS seeds,
        sum(status = 'rejected') AS rejections,
        avg(CASE WHEN ranked THEN log_speedup END) AS log_speedup,
        sum(CASE WHEN ranked THEN variance END) / (sum(ranked) * sum(ranked)) AS variance,
        max(CASE WHEN ranked THEN variance END) AS widest,
        max(CASE WHEN ranked THEN log_speedup END) - min(CASE WHEN ranked THEN log_speedup END) AS spread,
        avg(CASE WHEN ranked THEN log_over_best END) AS log_over_best,
        avg(CASE WHEN ranked THEN log_captured END) AS log_captured,
        avg(CASE WHEN ranked THEN log_captured_over_best END) AS log_captured_over_best
    FROM evaluation
    GROUP BY board, source_sha256
) AS found
JOIN board ON board.id = found.board
LEFT JOIN withdrawal ON withdrawal.source_sha256 = found.source_sha256 AND withdrawal.problem = board.problem;

CREATE VIEW ranking AS
WITH RECURSIVE
    every AS MATERIALIZED (SELECT * FROM entry),
    numbered AS MATERIALIZED (
        SELECT
            every.*,
            row_number() OVER (ORDER BY board, log_speedup DESC, source_sha256) AS number,
            row_number() OVER (PARTITION BY board ORDER BY log_speedup DESC, source_sha256) AS place
        FROM every
        WHERE standing = 'ranked'
    ),
    -- From one entry to the next, and the first that has the same rank.
    walk (number, first) AS (
        SELECT number, number FROM numbered WHERE number = 1
        UNION ALL
        SELECT
            following.number,
            CASE
                WHEN following.place > 1
                    AND (leader.log_speedup - following.log_speedup) * (leader.log_speedup - following.log_speedup)
                        <= 3.84 * (leader.variance + following.variance)
                THEN walk.first
                ELSE following.number
            END
        FROM walk
        JOIN numbered AS following ON following.number = walk.number + 1
        JOIN numbered AS leader ON leader.number = walk.first
    )
SELECT numbered.*, leader.place AS rank
FROM walk
JOIN numbered ON numbered.number = walk.number
JOIN numbered AS leader ON leader.number = walk.first
UNION ALL
SELECT every.*, NULL, NULL, NULL FROM every WHERE standing <> 'ranked';
"""

# All that `entry` reads, in its order: a board of 100,000 evaluations takes half the time, since no row is looked up.
_ENTRIES_FROM_AN_INDEX = """
DROP INDEX evaluation_board;
CREATE INDEX evaluation_entry ON evaluation (
    board, source_sha256, date, submission, ranked, seed, status, log_speedup, variance, log_over_best, log_captured,
    log_captured_over_best
);
"""

# Of what an older kernelgate kept, and of what was read from files, nobody knows how it was judged.
_PLAIN = """
ALTER TABLE evaluation ADD COLUMN plain INTEGER NOT NULL DEFAULT 0;  -- judged by a run that may answer for later ones
"""

# Statements that lead from each version to the next; a database says in user_version which it has.
MIGRATIONS = (_FIRST, _ENTRIES_FROM_AN_INDEX, _PLAIN)
