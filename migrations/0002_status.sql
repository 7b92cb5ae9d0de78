-- What the status page shows: components, how they did each day, and incidents with their timeline.

-- The newest word on each component.
CREATE TABLE component (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    detail TEXT,
    latency_ms BIGINT NOT NULL,
    checked_at BIGINT NOT NULL
);

-- One row for each component and UTC day, kept for 90 days.
CREATE TABLE uptime_day (
    component TEXT NOT NULL,
    day BIGINT NOT NULL,
    checks BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    PRIMARY KEY (component, day)
);
CREATE INDEX uptime_day_age ON uptime_day (day);

CREATE TABLE incident (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    impact TEXT NOT NULL,
    state TEXT NOT NULL,
    components TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    resolved_at BIGINT
);
CREATE INDEX incident_newest ON incident (created_at, id);
CREATE INDEX incident_open ON incident (created_at) WHERE resolved_at IS NULL;

CREATE TABLE incident_update (
    id TEXT PRIMARY KEY,
    incident_id TEXT NOT NULL REFERENCES incident (id) ON DELETE CASCADE,
    state TEXT NOT NULL,
    message TEXT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX incident_update_of ON incident_update (incident_id, at);
