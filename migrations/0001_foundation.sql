-- What every feature stands on: settings of the installation, jobs, replies kept for repeated requests.
-- One text for SQLite and PostgreSQL; docs/sql.md says what both understand alike.

-- One value for the whole installation, such as the proof that the master key is the right one.
CREATE TABLE setting (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Work to be done later. `ready_at` is when it may be taken: the moment it was planned for, or, once taken,
-- the end of the lease, so that the work of a dead node becomes ready again by itself. A dead letter has none.
CREATE TABLE job (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    unique_key TEXT UNIQUE,
    created_at BIGINT NOT NULL,
    ready_at BIGINT,
    is_claimed BOOLEAN NOT NULL,
    attempts BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    last_error TEXT,
    died_at BIGINT
);
CREATE INDEX job_ready ON job (ready_at, id) WHERE ready_at IS NOT NULL;
CREATE INDEX job_dead ON job (died_at, id) WHERE died_at IS NOT NULL;

-- When each recurring job is next due; whoever moves it on has the right to run it.
CREATE TABLE recurring_job (
    name TEXT PRIMARY KEY,
    next_at BIGINT NOT NULL
);

-- The answer to a request that carried an Idempotency-Key, sealed. No status: the first one is still at work.
CREATE TABLE idempotent_reply (
    scope TEXT PRIMARY KEY,
    request_hash TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    status BIGINT,
    sealed BYTEA
);
CREATE INDEX idempotent_reply_age ON idempotent_reply (started_at);
