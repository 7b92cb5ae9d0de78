-- Second factors: an authenticator app, a phone, recovery codes, and devices that were trusted after one of them.

-- `sealed` counts; `pending` was shown and waits for the first code. A step of the clock is accepted once.
CREATE TABLE totp_factor (
    account_id TEXT PRIMARY KEY REFERENCES account (id) ON DELETE CASCADE,
    sealed BYTEA,
    pending BYTEA,
    last_step BIGINT NOT NULL,
    enabled_at BIGINT
);

CREATE TABLE sms_factor (
    account_id TEXT PRIMARY KEY REFERENCES account (id) ON DELETE CASCADE,
    phone TEXT NOT NULL,
    enabled_at BIGINT NOT NULL
);

-- How many text messages went out in an hour, by number, network and country.
CREATE TABLE sms_budget (
    subject TEXT PRIMARY KEY,
    hour BIGINT NOT NULL,
    sent BIGINT NOT NULL
);

CREATE TABLE recovery_code (
    hash TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    used_at BIGINT
);
CREATE INDEX recovery_code_of ON recovery_code (account_id);

CREATE TABLE trusted_device (
    hash TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX trusted_device_of ON trusted_device (account_id);
CREATE INDEX trusted_device_age ON trusted_device (expires_at);

-- Programs that wait for somebody to let them in (RFC 8628). Both codes are kept as hashes.
CREATE TABLE device_code (
    hash TEXT PRIMARY KEY,
    user_code_hash TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    account_id TEXT REFERENCES account (id) ON DELETE CASCADE,
    device TEXT NOT NULL,
    ip TEXT NOT NULL,
    interval_s BIGINT NOT NULL,
    polled_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX device_code_age ON device_code (expires_at);
