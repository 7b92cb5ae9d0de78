-- What the edge served of each site, by hour. Times are counts by buckets of how long answers took.
CREATE TABLE site_traffic (
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    hour BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    errors BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    times TEXT NOT NULL,
    PRIMARY KEY (app_id, hour)
);
CREATE INDEX site_traffic_old ON site_traffic (hour);
