-- Webhooks: who listens to what, what happened, and what was carried to whom.

-- Whether anybody listens to what happens in an app, so that an act in any other costs nothing.
ALTER TABLE app ADD COLUMN has_webhooks BOOLEAN NOT NULL DEFAULT FALSE;

-- `next_at` is when the webhook has something to deliver next. Whoever delivers for it holds it until `held_until`; each
-- holder gets the next `fence`, and nothing counts that is written under an older one. Both secrets are sealed.
CREATE TABLE webhook (
    id TEXT PRIMARY KEY,
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    url TEXT NOT NULL,
    events TEXT NOT NULL,
    is_active BOOLEAN NOT NULL,
    standard_headers BOOLEAN NOT NULL,
    secret BYTEA NOT NULL,
    retiring_secret BYTEA,
    retiring_until BIGINT,
    failures BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    next_at BIGINT,
    held_until BIGINT NOT NULL,
    fence BIGINT NOT NULL
);
CREATE INDEX webhook_newest ON webhook (app_id, created_at, id);
CREATE INDEX webhook_due ON webhook (next_at, id) WHERE next_at IS NOT NULL;
CREATE INDEX webhook_retiring ON webhook (retiring_until) WHERE retiring_until IS NOT NULL;

-- One row for each value in `events`, so that who listens is looked up and not searched for.
CREATE TABLE webhook_subscription (
    app_id TEXT NOT NULL,
    event TEXT NOT NULL,
    webhook_id TEXT NOT NULL REFERENCES webhook (id) ON DELETE CASCADE,
    PRIMARY KEY (app_id, event, webhook_id)
);
CREATE INDEX webhook_subscription_of ON webhook_subscription (webhook_id);

-- The next two hold no references: what belongs to a webhook that is gone may be a million rows, and is swept out bit by
-- bit afterwards.

-- What happened, for one app: written by the transaction that made it happen. `waits_since` until it was handed out to
-- the webhooks; `held_until` while somebody does that; `reached` is the last webhook that was given it.
CREATE TABLE app_event (
    id TEXT PRIMARY KEY,
    app_id TEXT NOT NULL,
    account_id TEXT,
    webhook TEXT,
    type TEXT NOT NULL,
    facts TEXT NOT NULL,
    at BIGINT NOT NULL,
    waits_since BIGINT,
    held_until BIGINT NOT NULL,
    reached TEXT NOT NULL
);
CREATE INDEX app_event_waiting ON app_event (waits_since, id) WHERE waits_since IS NOT NULL;
CREATE INDEX app_event_newest ON app_event (app_id, at, id);
CREATE INDEX app_event_age ON app_event (at);
CREATE INDEX app_event_of ON app_event (account_id) WHERE account_id IS NOT NULL;

-- One event for one webhook under one name. `ready_at` is when the next attempt is due; none when there is no more.
CREATE TABLE webhook_delivery (
    id TEXT PRIMARY KEY,
    webhook_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    event TEXT NOT NULL,
    state TEXT NOT NULL,
    ready_at BIGINT,
    tries BIGINT NOT NULL,
    attempt_count BIGINT NOT NULL,
    status_code BIGINT NOT NULL,
    response TEXT,
    attempts TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    delivered_at BIGINT,
    UNIQUE (event_id, webhook_id, event)
);
CREATE INDEX webhook_delivery_due ON webhook_delivery (webhook_id, ready_at, id) WHERE ready_at IS NOT NULL;
CREATE INDEX webhook_delivery_newest ON webhook_delivery (webhook_id, delivered_at, id) WHERE delivered_at IS NOT NULL;
CREATE INDEX webhook_delivery_age ON webhook_delivery (delivered_at) WHERE delivered_at IS NOT NULL;
CREATE INDEX webhook_delivery_untried ON webhook_delivery (created_at) WHERE delivered_at IS NULL;
