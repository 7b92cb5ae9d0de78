-- What each node counted in a minute ('m'), and after two days in an hour ('h'): requests by route and jobs by kind, as JSON.
CREATE TABLE metric_span (
    span TEXT NOT NULL,
    -- When the minute or the hour began.
    since BIGINT NOT NULL,
    node TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (span, since, node)
);
