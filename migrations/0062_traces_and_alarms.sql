-- One request can be followed through everything that it caused: what is written carries its ID. `traceparent` is the span that
-- caused a row, in the form of the header of W3C Trace Context, and is sent on with deliveries.
ALTER TABLE audit_event ADD COLUMN request_id TEXT;
CREATE INDEX audit_event_request ON audit_event (request_id) WHERE request_id IS NOT NULL;
ALTER TABLE job ADD COLUMN request_id TEXT;
ALTER TABLE job ADD COLUMN traceparent TEXT;
CREATE INDEX job_request ON job (request_id) WHERE request_id IS NOT NULL;
-- Deliveries are found by their event.
ALTER TABLE app_event ADD COLUMN request_id TEXT;
ALTER TABLE app_event ADD COLUMN traceparent TEXT;
CREATE INDEX app_event_request ON app_event (request_id) WHERE request_id IS NOT NULL;
ALTER TABLE mail ADD COLUMN request_id TEXT;
-- Which mail it is, such as `verify_email`.
ALTER TABLE mail ADD COLUMN name TEXT;
CREATE INDEX mail_request ON mail (request_id) WHERE request_id IS NOT NULL;
ALTER TABLE email_message ADD COLUMN request_id TEXT;
CREATE INDEX email_message_request ON email_message (request_id) WHERE request_id IS NOT NULL;
ALTER TABLE usage_event ADD COLUMN request_id TEXT;
CREATE INDEX usage_event_request ON usage_event (request_id) WHERE request_id IS NOT NULL;

-- Jobs of a request that are done, for a week.
CREATE TABLE job_past (
    id TEXT PRIMARY KEY,
    request_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL
);
CREATE INDEX job_past_request ON job_past (request_id);
CREATE INDEX job_past_age ON job_past (ended_at);

-- Mails of a request that were sent, for a week: neither to whom nor what they said.
CREATE TABLE mail_sent (
    id TEXT PRIMARY KEY,
    request_id TEXT NOT NULL,
    name TEXT,
    attempts BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    sent_at BIGINT NOT NULL
);
CREATE INDEX mail_sent_request ON mail_sent (request_id);
CREATE INDEX mail_sent_age ON mail_sent (sent_at);

-- Requests that left something behind and requests that failed, for a week. A caller may give several requests one ID.
CREATE TABLE request_span (
    id TEXT PRIMARY KEY,
    request_id TEXT NOT NULL,
    method TEXT NOT NULL,
    -- The pattern of the path.
    route TEXT NOT NULL,
    status BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    took_us BIGINT NOT NULL,
    traceparent TEXT NOT NULL
);
CREATE INDEX request_span_request ON request_span (request_id);

-- The alarm that opened an incident by itself, and since when it finds nothing any more.
ALTER TABLE incident ADD COLUMN alarm TEXT;
ALTER TABLE incident ADD COLUMN well_since BIGINT;
CREATE INDEX incident_alarm ON incident (alarm, created_at) WHERE alarm IS NOT NULL;
-- An alarm has one open incident at the most, also when its job runs twice.
CREATE UNIQUE INDEX incident_alarm_open ON incident (alarm) WHERE alarm IS NOT NULL AND resolved_at IS NULL;
