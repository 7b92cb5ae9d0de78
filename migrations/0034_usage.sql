-- Metered usage of apps. An event, its id, its totals and the quota are written by one transaction.
CREATE TABLE usage_event (
    id TEXT PRIMARY KEY,
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    environment TEXT NOT NULL,
    meter TEXT NOT NULL,
    -- When it happened, and when it came.
    at BIGINT NOT NULL,
    received_at BIGINT NOT NULL,
    value BIGINT NOT NULL,
    customer TEXT NOT NULL,
    event_id TEXT NOT NULL,
    properties TEXT NOT NULL,
    -- What it cost the app's owner: a decimal number of minor units, and the currency.
    cost TEXT,
    -- The event that this one adjusts.
    corrects TEXT
);
CREATE INDEX usage_event_newest ON usage_event (app_id, environment, meter, at, id);
CREATE INDEX usage_event_corrects ON usage_event (corrects) WHERE corrects IS NOT NULL;
CREATE INDEX usage_event_old ON usage_event (received_at);

-- The ids of events, as keyed digests, so that an event that comes again is known. Two generations of 40 days are kept: new
-- ids go into a small tree, and an old generation is deleted as a whole.
CREATE TABLE usage_seen (
    generation BIGINT NOT NULL,
    digest TEXT NOT NULL,
    content TEXT NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (generation, digest)
);

-- Totals by quarter of an hour ('q'); of meters that count unique keys also by day ('d') and month ('m'). Empty texts stand
-- for all customers, and for no property.
CREATE TABLE usage_total (
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    environment TEXT NOT NULL,
    meter TEXT NOT NULL,
    span TEXT NOT NULL,
    property TEXT NOT NULL,
    customer TEXT NOT NULL,
    choice TEXT NOT NULL,
    slot BIGINT NOT NULL,
    total BIGINT NOT NULL,
    events BIGINT NOT NULL,
    most BIGINT NOT NULL,
    latest BIGINT NOT NULL,
    latest_at BIGINT NOT NULL,
    PRIMARY KEY (app_id, environment, meter, span, property, customer, choice, slot)
);

-- The keys that were counted as unique in a day ('d') or a month ('m').
CREATE TABLE usage_unique (
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    environment TEXT NOT NULL,
    meter TEXT NOT NULL,
    span TEXT NOT NULL,
    property TEXT NOT NULL,
    customer TEXT NOT NULL,
    choice TEXT NOT NULL,
    slot BIGINT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (app_id, environment, meter, span, property, customer, choice, slot, digest)
);

-- The values of properties that are kept apart, of which a meter has at most a hundred.
CREATE TABLE usage_choice (
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    environment TEXT NOT NULL,
    meter TEXT NOT NULL,
    property TEXT NOT NULL,
    choice TEXT NOT NULL,
    PRIMARY KEY (app_id, environment, meter, property, choice)
);
