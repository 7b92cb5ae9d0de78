-- Recipients that an app does not write to.
CREATE TABLE email_suppression (
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    email_key TEXT NOT NULL,
    email TEXT NOT NULL,
    -- bounce, complaint, unsubscribe or manual
    reason TEXT NOT NULL,
    detail TEXT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    PRIMARY KEY (app_id, email_key)
);
CREATE INDEX email_suppression_newest ON email_suppression (app_id, created_at, email_key);
CREATE INDEX email_suppression_expired ON email_suppression (expires_at) WHERE expires_at IS NOT NULL;

-- Words of mails, in one or more languages. The locale '' is used where no other fits.
CREATE TABLE email_template (
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    locale TEXT NOT NULL,
    subject TEXT NOT NULL,
    html TEXT,
    body_text TEXT,
    sample TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (app_id, name, locale)
);

-- How the mail of an app fares, by hour.
CREATE TABLE email_hour (
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    hour BIGINT NOT NULL,
    accepted BIGINT NOT NULL,
    sent BIGINT NOT NULL,
    bounced BIGINT NOT NULL,
    complained BIGINT NOT NULL,
    PRIMARY KEY (app_id, hour)
);

-- Whether an app may send at all.
CREATE TABLE email_sending (
    app_id TEXT PRIMARY KEY REFERENCES app (id) ON DELETE CASCADE,
    paused_at BIGINT,
    reason TEXT,
    -- Rates are judged by what happened after this.
    judged_from BIGINT NOT NULL,
    warned_at BIGINT
);
