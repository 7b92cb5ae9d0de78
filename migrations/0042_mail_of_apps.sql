-- Mail that apps send. A message has one row for each recipient; rows of one recipient domain are one lane.
CREATE TABLE email_message (
    id TEXT PRIMARY KEY,
    -- None for mail of the platform's own sender.
    app_id TEXT REFERENCES app (id) ON DELETE CASCADE,
    -- 'app:…' or 'account:…': whose idempotency keys these are.
    sender TEXT NOT NULL,
    -- The sending domain that signs; none for the platform's own sender.
    hostname TEXT,
    from_header TEXT NOT NULL,
    reply_to TEXT,
    subject TEXT NOT NULL,
    tags TEXT NOT NULL,
    template TEXT,
    -- Bodies, headers and attachments. Dropped some time after the last recipient's end.
    sealed BYTEA,
    idempotency_key TEXT,
    request_hash TEXT,
    scheduled_at BIGINT,
    created_at BIGINT NOT NULL,
    -- When the last recipient's delivery ended.
    ended_at BIGINT
);
CREATE UNIQUE INDEX email_message_sender_idempotency_key_key ON email_message (sender, idempotency_key);
CREATE INDEX email_message_newest ON email_message (app_id, created_at, id);
CREATE INDEX email_message_old ON email_message (created_at);
CREATE INDEX email_message_ended ON email_message (ended_at) WHERE sealed IS NOT NULL;

CREATE TABLE email_recipient (
    id TEXT PRIMARY KEY,
    message_id TEXT NOT NULL REFERENCES email_message (id) ON DELETE CASCADE,
    app_id TEXT,
    email TEXT NOT NULL,
    email_key TEXT NOT NULL,
    -- to, cc or bcc
    kind TEXT NOT NULL,
    -- The recipient's domain.
    lane TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    -- When it is tried next; none once it has ended.
    next_at BIGINT,
    -- Not tried after this.
    expires_at BIGINT NOT NULL,
    -- The last answer of the mail server, and its own id of the mail.
    answer TEXT,
    relay_id TEXT,
    sent_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX email_recipient_due ON email_recipient (lane, next_at, id) WHERE next_at IS NOT NULL;
CREATE INDEX email_recipient_message ON email_recipient (message_id, id);
CREATE INDEX email_recipient_status ON email_recipient (app_id, status, created_at, message_id);
CREATE INDEX email_recipient_email ON email_recipient (app_id, email_key, created_at, message_id);
CREATE INDEX email_recipient_relay ON email_recipient (relay_id) WHERE relay_id IS NOT NULL;

CREATE TABLE email_event (
    id TEXT PRIMARY KEY,
    recipient_id TEXT NOT NULL REFERENCES email_recipient (id) ON DELETE CASCADE,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    detail TEXT
);
CREATE INDEX email_event_recipient ON email_event (recipient_id, at, id);

-- A recipient domain that has mail waiting. One node delivers to it at a time, under a lease and a fencing number.
CREATE TABLE email_lane (
    domain TEXT PRIMARY KEY,
    next_at BIGINT,
    held_until BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    -- Refusals in a row, and until when the lane rests because of them.
    failures BIGINT NOT NULL
);
CREATE INDEX email_lane_due ON email_lane (next_at, domain) WHERE next_at IS NOT NULL;

CREATE TABLE email_domain (
    app_id TEXT NOT NULL REFERENCES app (id) ON DELETE CASCADE,
    hostname TEXT NOT NULL,
    org_id TEXT NOT NULL,
    -- Whether senders below the host may be used, too.
    subdomains BOOLEAN NOT NULL,
    status TEXT NOT NULL,
    -- Which generation of keys signs, and whether the return path leads here.
    signing BIGINT NOT NULL,
    has_return_path BOOLEAN NOT NULL,
    -- What the last check found, as JSON.
    findings TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    checked_at BIGINT,
    verified_at BIGINT,
    next_check_at BIGINT,
    checks BIGINT NOT NULL,
    -- Since when a required record is definitely gone, and since when that is a failure.
    missing_since BIGINT,
    failing_since BIGINT,
    PRIMARY KEY (app_id, hostname)
);
CREATE INDEX email_domain_due ON email_domain (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX email_domain_host ON email_domain (hostname);

-- The organization that has proven a host. Its apps may each verify the host, others may not.
CREATE TABLE email_host (
    hostname TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE
);

CREATE TABLE email_key (
    app_id TEXT NOT NULL,
    hostname TEXT NOT NULL,
    generation BIGINT NOT NULL,
    -- rsa or ed25519
    algorithm TEXT NOT NULL,
    selector TEXT NOT NULL,
    public_key TEXT NOT NULL,
    sealed BYTEA NOT NULL,
    -- Whether its record was seen.
    is_seen BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (app_id, hostname, generation, algorithm),
    FOREIGN KEY (app_id, hostname) REFERENCES email_domain (app_id, hostname) ON DELETE CASCADE
);
