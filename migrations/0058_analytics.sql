-- Analytics: counts of what happened in apps, and how many people were there.

-- What is not counted yet: one row for each audit event of an app, written by the transaction of the event, and one for
-- what analytics counts beside events. A job adds the rows to the tables below and deletes them, in one transaction.
CREATE TABLE event_tally (
    id TEXT PRIMARY KEY,
    app_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    method TEXT NOT NULL,
    account_id TEXT,
    at BIGINT NOT NULL
);

-- One counting transaction at a time: on PostgreSQL each locks this row.
CREATE TABLE tally_turn (name TEXT PRIMARY KEY);
INSERT INTO tally_turn (name) VALUES ('fold');

-- Events by UTC hour, kept for 35 days.
CREATE TABLE event_hour (
    app_id TEXT NOT NULL,
    hour BIGINT NOT NULL,
    kind TEXT NOT NULL,
    n BIGINT NOT NULL,
    PRIMARY KEY (app_id, hour, kind)
);
CREATE INDEX event_hour_old ON event_hour (hour);

-- Events by day of the organization's time zone. A scope is an app or an organization.
CREATE TABLE event_day (
    scope TEXT NOT NULL,
    day BIGINT NOT NULL,
    kind TEXT NOT NULL,
    method TEXT NOT NULL,
    n BIGINT NOT NULL,
    PRIMARY KEY (scope, day, kind, method)
);

-- When a person was last seen: the last day, the 60 days up to it as bits (the lowest is the last day), and the last day
-- before those.
CREATE TABLE active_user (
    scope TEXT NOT NULL,
    account_id TEXT NOT NULL,
    last_day BIGINT NOT NULL,
    days BIGINT NOT NULL,
    before_day BIGINT,
    PRIMARY KEY (scope, account_id)
);
CREATE INDEX active_user_of ON active_user (account_id);

-- How many people were seen on a day, by the number of days since they were seen before; 0 stands for never.
CREATE TABLE active_gap (
    scope TEXT NOT NULL,
    day BIGINT NOT NULL,
    gap BIGINT NOT NULL,
    users BIGINT NOT NULL,
    PRIMARY KEY (scope, day, gap)
);

-- How many people are known in a scope.
CREATE TABLE active_total (
    scope TEXT PRIMARY KEY,
    users BIGINT NOT NULL
);

-- Events of a person in a day ('d'), an ISO week ('w') or a month ('m') that begins with the day `since`.
CREATE TABLE user_period (
    app_id TEXT NOT NULL,
    period TEXT NOT NULL,
    since BIGINT NOT NULL,
    account_id TEXT NOT NULL,
    events BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    PRIMARY KEY (app_id, period, since, account_id)
);
CREATE INDEX user_period_top ON user_period (app_id, period, since, events, account_id);
CREATE INDEX user_period_of ON user_period (account_id);
CREATE INDEX user_period_old ON user_period (since);

-- The steps that a person reached in a funnel they began on a day.
CREATE TABLE funnel_step (
    app_id TEXT NOT NULL,
    account_id TEXT NOT NULL,
    funnel TEXT NOT NULL,
    day BIGINT NOT NULL,
    step BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (app_id, account_id, funnel, day, step)
);
CREATE INDEX funnel_step_of ON funnel_step (account_id);
CREATE INDEX funnel_step_old ON funnel_step (at);

-- How many of those who began on a day reached a step, by the time it took: 0 within an hour, 1 a day, 2 seven days, 3 thirty.
CREATE TABLE funnel_day (
    app_id TEXT NOT NULL,
    funnel TEXT NOT NULL,
    day BIGINT NOT NULL,
    step BIGINT NOT NULL,
    within BIGINT NOT NULL,
    users BIGINT NOT NULL,
    PRIMARY KEY (app_id, funnel, day, step, within)
);

-- The time zones of an organization's days: each counts from a moment on, with which the day `first_day` begins.
CREATE TABLE analytics_zone (
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    since BIGINT NOT NULL,
    first_day BIGINT NOT NULL,
    zone TEXT NOT NULL,
    PRIMARY KEY (org_id, since)
);

-- Events from before there was analytics are counted by a job.
ALTER TABLE audit_event ADD COLUMN is_tallied BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX audit_event_untallied ON audit_event (at, id) WHERE app_id IS NOT NULL AND NOT is_tallied;

-- When a session was seen before it was last seen: a refresh counts a person once a day.
ALTER TABLE session ADD COLUMN seen_before_at BIGINT;
