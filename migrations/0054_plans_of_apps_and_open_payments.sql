-- The plan that an app has for itself; empty where it shares its organization's.
ALTER TABLE app ADD COLUMN plan TEXT NOT NULL DEFAULT '';

-- What an app with a plan of its own has used of each meter that begins anew with a month or a day, as in quota.
CREATE TABLE app_quota (
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    org_id TEXT NOT NULL,
    meter TEXT NOT NULL,
    period BIGINT NOT NULL,
    used BIGINT NOT NULL,
    told BIGINT NOT NULL DEFAULT 0,
    told_limit BIGINT NOT NULL DEFAULT 0,
    told_month BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (app_id, meter, period)
);
CREATE INDEX app_quota_old ON app_quota (period);

-- The plans that are in use.
CREATE INDEX app_plan ON app (plan, id) WHERE plan <> '';

-- What waits for somebody else and is read again each hour.
CREATE INDEX merchant_payment_open ON merchant_payment (created_at, id) WHERE status = 'open';
CREATE INDEX merchant_unsettled ON merchant (created_at, id) WHERE ended_at IS NULL AND status <> 'enabled';
