"""The questions that are put to the ledger, as SQL. Answers are made into values by ``rows``."""

from __future__ import annotations

# Tallies: a key, a count, bytes of sources, bytes of archives. A series' archive is of its first
# member, and counts once.
STATES = """
    SELECT source.state, COUNT(*), SUM(source.size),
        COALESCE(SUM(archive.nbytes * (archive.source = source.id)), 0)
    FROM source LEFT JOIN archive ON archive.id = source.archive
    WHERE source.seen_run >= ? GROUP BY source.state"""
MODES = """
    SELECT archive.mode, COUNT(*), SUM(source.size),
        COALESCE(SUM(archive.nbytes * (archive.source = source.id)), 0)
    FROM source JOIN archive ON archive.id = source.archive
    WHERE source.seen_run >= ? GROUP BY archive.mode"""
SETTLED = """
    SELECT 'settled', COUNT(*), COALESCE(SUM(source.size), 0),
        COALESCE(SUM(archive.nbytes * (archive.source = source.id)), 0)
    FROM source LEFT JOIN archive ON archive.id = source.archive
    WHERE source.seen_run >= ? AND source.state IN ('archived', 'reported')
    AND source.run < source.seen_run"""
ADOPTED = """
    SELECT 'adopted', COUNT(*), COALESCE(SUM(source.size), 0),
        COALESCE(SUM(archive.nbytes * (archive.source = source.id)), 0)
    FROM source JOIN archive ON archive.id = source.archive
    WHERE source.run = ? AND archive.run = source.run AND archive.adopted"""
VANISHED = """
    SELECT 'vanished', COUNT(*), COALESCE(SUM(source.size), 0),
        COALESCE(SUM(archive.nbytes * (archive.source = source.id)), 0)
    FROM source LEFT JOIN archive ON archive.id = source.archive
    WHERE source.seen_run < ?"""
LEFT_BEHIND = "SELECT state, count, source_nbytes, archive_nbytes FROM tally WHERE run = ?"

REASONS = """
    SELECT reason, COUNT(*) FROM source
    WHERE seen_run >= ? AND reason IS NOT NULL AND state = 'archived' GROUP BY reason"""
BINDING = "SELECT source, destination FROM run ORDER BY id LIMIT 1"
LAST_WALKED = "SELECT COALESCE(MAX(id), 0) FROM run WHERE walked"
RUNS = """
    SELECT id, started_ns, ended_ns, host, pid, version, walked, stopped
    FROM run ORDER BY id DESC LIMIT ?"""

# One page of a long list: after this row, of this run and later, how many.
FAILURES = """
    SELECT id, relpath, failure, message FROM source
    WHERE state = 'failed' AND id > :after AND seen_run >= :run ORDER BY id LIMIT :limit"""
TROUBLES = """
    SELECT id, relpath, failure, message FROM trouble
    WHERE id > :after AND run >= :run ORDER BY id LIMIT :limit"""
CAUSES = """
    SELECT failure, COUNT(*), SUM(size), 0 FROM source
    WHERE state = 'failed' AND seen_run >= ? GROUP BY failure"""
TROUBLE_COUNT = """
    SELECT (SELECT COUNT(*) FROM trouble WHERE run >= ?)
    + (SELECT COUNT(*) FROM source WHERE state = 'failed' AND seen_run >= ?)"""

WARNINGS = """
    SELECT warning.id, source.relpath, warning.message
    FROM warning JOIN source ON source.id = warning.source
    WHERE source.state = 'archived' AND warning.id > :after AND source.seen_run >= :run
    AND warning.run >= :since ORDER BY warning.id LIMIT :limit"""
WARNING_COUNT = """
    SELECT COUNT(DISTINCT source.id) FROM warning JOIN source ON source.id = warning.source
    WHERE source.state = 'archived' AND source.seen_run >= ? AND warning.run >= ?"""

STANDING = """
    SELECT source.size, source.mtime_ns, source.state, archive.path, archive.nbytes
    FROM source LEFT JOIN archive ON archive.id = source.archive WHERE source.relpath = ?"""
SOURCE = """
    SELECT source.relpath, source.size, source.mtime_ns, source.state, archive.path,
        source.reason, source.detail, source.failure, source.message, source.run, source.seen_run
    FROM source LEFT JOIN archive ON archive.id = source.archive WHERE source.relpath = ?"""
SOURCES = """
    SELECT source.id, source.relpath, source.size, source.mtime_ns, source.state, archive.path,
        source.reason, source.detail, source.failure, source.message, source.run, source.seen_run
    FROM source LEFT JOIN archive ON archive.id = source.archive
    WHERE source.id > :after ORDER BY source.id LIMIT :limit"""
ARCHIVE = """
    SELECT archive.path, source.relpath, archive.version, archive.size, archive.mtime_ns,
        archive.sha256, archive.mode, archive.reason, archive.detail, archive.nbytes,
        archive.adopted, archive.verified_ns, archive.verified_by
    FROM archive JOIN source ON source.id = archive.source WHERE archive.path = ?"""
# The same size and time are in the archive that holds them; anything else may be in the newest,
# where only the date changed.
VERSION = """
    SELECT COALESCE(
        MAX(CASE WHEN archive.size = :size AND archive.mtime_ns = :mtime_ns
            THEN archive.version END),
        MAX(archive.version), 1)
    FROM source JOIN archive ON archive.source = source.id
    WHERE source.relpath = :relpath AND archive.mode <> 'series'"""
TAKEN = """
    SELECT source.relpath FROM archive JOIN source ON source.id = archive.source
    WHERE archive.path = ?
    UNION ALL
    SELECT source.relpath FROM job JOIN source ON source.id = job.source
    WHERE job.archive = ? AND job.state = 'started'"""

_ATTEMPTS = """
    SELECT job.run, source.relpath, job.archive, job.mode, attempt.started_ns, attempt.ended_ns,
        attempt.outcome, attempt.failure, attempt.message, attempt.worker,
        attempt.projected_bytes, attempt.peak_bytes, attempt.seconds
    FROM attempt JOIN job ON job.id = attempt.job JOIN source ON source.id = job.source """
ATTEMPTS = _ATTEMPTS + "WHERE source.relpath = ? ORDER BY attempt.id"
ATTEMPTS_BY_MEMORY = (
    _ATTEMPTS
    + """WHERE attempt.peak_bytes > 0
    ORDER BY CAST(attempt.peak_bytes AS REAL) / MAX(attempt.projected_bytes, 1) DESC LIMIT ?"""
)

# A source is met and has work left: what an earlier run said of other content, of a file that is
# no longer only reported, or of an archive that is gone, does not hold any more.
FORGET = """
    UPDATE source SET state = 'waiting', archive = NULL, run = NULL, settled_ns = NULL,
        reason = NULL, detail = '', failure = NULL, message = ''
    WHERE relpath = :relpath
    AND (size <> :size OR mtime_ns <> :mtime_ns OR state IN ('reported', 'archived'))"""
MEET = """
    INSERT INTO source (relpath, size, mtime_ns, mode, seen_run)
    VALUES (:relpath, :size, :mtime_ns, :mode, :run)
    ON CONFLICT (relpath) DO UPDATE SET size = excluded.size, mtime_ns = excluded.mtime_ns,
        mode = excluded.mode, seen_run = excluded.seen_run"""

# A job is begun; what its last attempt left open was lost with its worker.
BEGIN_JOB = """
    INSERT INTO job (run, source, archive, mode, state)
    SELECT :run, id, :archive, :archive_mode, 'started' FROM source WHERE relpath = :relpath
    ON CONFLICT (source, run) DO UPDATE SET archive = excluded.archive, mode = excluded.mode,
        state = 'started'"""
LOSE_ATTEMPT = """
    UPDATE attempt SET outcome = 'lost', ended_ns = :now_ns
    WHERE outcome = 'started' AND job = (
        SELECT job.id FROM job JOIN source ON source.id = job.source
        WHERE source.relpath = :relpath AND job.run = :run)"""
BEGIN_ATTEMPT = """
    INSERT INTO attempt (job, started_ns, projected_bytes, temporary)
    SELECT job.id, :now_ns, :projected_bytes, :temporary
    FROM job JOIN source ON source.id = job.source
    WHERE source.relpath = :relpath AND job.run = :run"""
BEGIN = (FORGET, MEET, BEGIN_JOB, LOSE_ATTEMPT, BEGIN_ATTEMPT)

# An outcome is recorded. A failed attempt may have left its temporary name behind.
END_ATTEMPT = """
    UPDATE attempt SET outcome = :state, ended_ns = :now_ns, failure = :failure,
        message = :message, worker = :worker, peak_bytes = :peak_bytes, seconds = :seconds,
        temporary = CASE WHEN :state = 'failed' THEN temporary END
    WHERE outcome = 'started' AND job = (
        SELECT job.id FROM job JOIN source ON source.id = job.source
        WHERE source.relpath = :relpath AND job.run = :run)"""
END_JOB = """
    UPDATE job SET state = CASE WHEN :state = 'failed' THEN 'failed' ELSE 'done' END
    WHERE run = :run AND source = (SELECT id FROM source WHERE relpath = :relpath)"""
END = (MEET, END_ATTEMPT, END_JOB)
KEEP_ARCHIVE = """
    INSERT INTO archive (path, source, version, size, mtime_ns, sha256, mode, reason, detail,
        nbytes, adopted, run, verified_ns, verified_by)
    SELECT :archive, id,
        (SELECT COALESCE(MAX(held.version), 0) + 1 FROM archive held WHERE held.source = source.id),
        :size, :mtime_ns, :sha256, :archive_mode, :reason, :detail, :archive_nbytes, :adopted,
        :run, :now_ns, :verified_by
    FROM source WHERE relpath = :relpath
    ON CONFLICT (path) DO UPDATE SET size = excluded.size, mtime_ns = excluded.mtime_ns,
        sha256 = excluded.sha256, mode = excluded.mode, reason = excluded.reason,
        detail = excluded.detail, nbytes = excluded.nbytes, adopted = excluded.adopted,
        run = excluded.run, verified_ns = excluded.verified_ns,
        verified_by = excluded.verified_by
        WHERE source = excluded.source"""
SETTLE = """
    UPDATE source SET state = :state, run = :run, settled_ns = :now_ns, reason = :reason,
        detail = :detail, message = :message,
        failure = CASE WHEN :state = 'failed' THEN :failure END,
        archive = CASE WHEN :state = 'archived'
            THEN (SELECT id FROM archive WHERE path = :archive) END
    WHERE relpath = :relpath"""
TROUBLE = """
    INSERT INTO trouble (run, relpath, failure, message)
    VALUES (:run, :relpath, :failure, :message)"""
# What an earlier archive of the source warned of is not true of this one.
UNWARN = "DELETE FROM warning WHERE source = (SELECT id FROM source WHERE relpath = :relpath)"
WARN = """
    INSERT INTO warning (run, source, message)
    SELECT :run, id, :message FROM source WHERE relpath = :relpath"""

# Series and their members.
ENROLL_SERIES = """
    INSERT INTO series (stem, axes, layout, found) VALUES (:stem, :axes, :layout, :found)
    ON CONFLICT (stem) DO UPDATE SET axes = excluded.axes, layout = excluded.layout,
        found = excluded.found"""
ENROLL = """
    INSERT INTO member (source, series, run, place, identity)
    SELECT source.id, series.id, :run, :place, :identity FROM source, series
    WHERE source.relpath = :relpath AND series.stem = :stem
    ON CONFLICT (source) DO UPDATE SET series = excluded.series, run = excluded.run,
        place = excluded.place, identity = excluded.identity"""
OPEN_SERIES = """
    SELECT member.series FROM member JOIN source ON source.id = member.source
    WHERE member.run = ? AND source.state <> 'archived' GROUP BY member.series
    ORDER BY member.series"""
SERIES = "SELECT stem, axes, layout, found, staging FROM series WHERE id = ?"
MEMBERS = """
    SELECT source.relpath, source.size, source.mtime_ns, source.mode, member.place,
        member.identity, member.bundle, member.sha256, member.nbytes,
        member.size = source.size AND member.mtime_ns = source.mtime_ns
    FROM member JOIN source ON source.id = member.source
    WHERE member.series = ? AND member.run = ? ORDER BY source.relpath"""
STAGE = "UPDATE series SET staging = :staging WHERE stem = :stem"
STAGINGS = """
    SELECT staging FROM series WHERE staging IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM member WHERE member.series = series.id AND member.run = ?)"""
UNSTAGE = "UPDATE series SET staging = NULL WHERE staging = ?"
BUNDLE = """
    UPDATE member SET bundle = :archive, size = :size, mtime_ns = :mtime_ns, sha256 = :sha256,
        nbytes = :archive_nbytes
    WHERE source = (SELECT id FROM source WHERE relpath = :relpath)"""

# A run begins and ends.
BEGIN_RUN = """
    INSERT INTO run (started_ns, host, pid, version, source, destination, config)
    VALUES (:started_ns, :host, :pid, :version, :source, :destination, :config)"""
END_RUN = "UPDATE run SET ended_ns = :ended_ns, stopped = :stopped WHERE id = :run"
LEAVE_BEHIND = """
    INSERT INTO tally (run, state, count, source_nbytes, archive_nbytes)
    SELECT :run, source.state, COUNT(*), SUM(source.size),
        COALESCE(SUM(archive.nbytes * (archive.source = source.id)), 0)
    FROM source LEFT JOIN archive ON archive.id = source.archive
    WHERE source.seen_run = :run GROUP BY source.state"""
LOSE_ATTEMPTS = """
    UPDATE attempt SET outcome = 'lost', ended_ns = :ended_ns WHERE outcome = 'started'"""
LOSE_JOBS = "UPDATE job SET state = 'lost' WHERE state = 'started'"
FINISH = (LOSE_ATTEMPTS, LOSE_JOBS, END_RUN, LEAVE_BEHIND)
LEFTOVERS = """
    SELECT DISTINCT temporary FROM attempt
    WHERE temporary IS NOT NULL AND outcome <> 'started' AND temporary NOT IN (
        SELECT temporary FROM attempt WHERE outcome = 'started' AND temporary IS NOT NULL)"""
SWEEP = "UPDATE attempt SET temporary = NULL WHERE temporary = ? AND outcome <> 'started'"
