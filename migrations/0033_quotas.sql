-- What each organization has used of each meter. A gauge (members, apps, keys, webhooks) has period 0; what begins anew with
-- a month or a day has a row for each, named by the moment it began.
CREATE TABLE quota (
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    meter TEXT NOT NULL,
    period BIGINT NOT NULL,
    used BIGINT NOT NULL,
    -- The warning that was sent last: percent, of which limit, in which month.
    told BIGINT NOT NULL DEFAULT 0,
    told_limit BIGINT NOT NULL DEFAULT 0,
    told_month BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (org_id, meter, period)
);
CREATE INDEX quota_old ON quota (period) WHERE period > 0;

INSERT INTO quota (org_id, meter, period, used)
    SELECT org_id, 'members', 0, CAST(COUNT(*) AS BIGINT) FROM org_member GROUP BY org_id;
INSERT INTO quota (org_id, meter, period, used)
    SELECT org_id, 'apps', 0, CAST(COUNT(*) AS BIGINT) FROM app GROUP BY org_id;
INSERT INTO quota (org_id, meter, period, used)
    SELECT app.org_id, 'keys', 0, CAST(COUNT(*) AS BIGINT) FROM app JOIN app_key ON app_key.app_id = app.id
    GROUP BY app.org_id;
INSERT INTO quota (org_id, meter, period, used)
    SELECT app.org_id, 'webhooks', 0, CAST(COUNT(*) AS BIGINT) FROM app JOIN webhook ON webhook.app_id = app.id
    GROUP BY app.org_id;

-- The month in which somebody was last counted as active in an app, by the moment it began.
ALTER TABLE app_user ADD COLUMN active_month BIGINT NOT NULL DEFAULT 0;

-- The plans that are in use.
CREATE INDEX org_plan ON org (tier, id) WHERE tier <> 'free';

-- All organizations, newest first, for platform owners.
CREATE INDEX org_newest ON org (created_at, id);
