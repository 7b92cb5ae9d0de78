-- Merchants of apps: people and companies who are paid through an app. They are addressed by our ids.
CREATE TABLE merchant (
    id TEXT PRIMARY KEY,
    app_id TEXT NOT NULL,
    org_id TEXT NOT NULL,
    account TEXT,
    livemode BOOLEAN NOT NULL,
    status TEXT NOT NULL,
    charges_enabled BOOLEAN NOT NULL,
    payouts_enabled BOOLEAN NOT NULL,
    details_submitted BOOLEAN NOT NULL,
    requirements TEXT NOT NULL,
    country TEXT NOT NULL,
    email TEXT,
    business_name TEXT,
    display_name TEXT,
    default_currency TEXT,
    return_url TEXT NOT NULL,
    refresh_url TEXT NOT NULL,
    reads BIGINT NOT NULL,
    applied BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE UNIQUE INDEX merchant_account_key ON merchant (account) WHERE account IS NOT NULL;
CREATE INDEX merchant_newest ON merchant (app_id, created_at, id);

-- Payments to merchants.
CREATE TABLE merchant_payment (
    id TEXT PRIMARY KEY,
    merchant_id TEXT NOT NULL REFERENCES merchant (id) ON DELETE CASCADE,
    app_id TEXT NOT NULL,
    -- The caller's Idempotency-Key, as a digest.
    request_key TEXT,
    charge_type TEXT NOT NULL,
    items TEXT NOT NULL,
    amount BIGINT NOT NULL,
    fee BIGINT NOT NULL,
    currency TEXT NOT NULL,
    reference TEXT,
    metadata TEXT NOT NULL,
    customer_email TEXT,
    status TEXT NOT NULL,
    refunded BIGINT NOT NULL,
    fee_refunded BIGINT NOT NULL,
    lost BIGINT NOT NULL,
    processor_fee BIGINT NOT NULL,
    processor_id TEXT,
    payment_intent TEXT,
    url TEXT,
    success_url TEXT NOT NULL,
    cancel_url TEXT NOT NULL,
    expires_at BIGINT,
    livemode BOOLEAN NOT NULL,
    reads BIGINT NOT NULL,
    applied BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    paid_at BIGINT
);
CREATE UNIQUE INDEX merchant_payment_app_id_request_key_key ON merchant_payment (app_id, request_key) WHERE request_key IS NOT NULL;
CREATE UNIQUE INDEX merchant_payment_processor_id_key ON merchant_payment (processor_id) WHERE processor_id IS NOT NULL;
CREATE INDEX merchant_payment_newest ON merchant_payment (app_id, created_at, id);
CREATE INDEX merchant_payment_of_merchant ON merchant_payment (merchant_id, created_at, id);
CREATE INDEX merchant_payment_intent ON merchant_payment (payment_intent) WHERE payment_intent IS NOT NULL;
CREATE INDEX merchant_payment_paid ON merchant_payment (paid_at, id) WHERE paid_at IS NOT NULL;

CREATE TABLE merchant_refund (
    id TEXT PRIMARY KEY,
    payment_id TEXT NOT NULL REFERENCES merchant_payment (id) ON DELETE CASCADE,
    request_key TEXT NOT NULL,
    amount BIGINT NOT NULL,
    fee BIGINT NOT NULL,
    reason TEXT,
    -- wanted, done or refused
    state TEXT NOT NULL,
    processor_id TEXT,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX merchant_refund_payment_id_request_key_key ON merchant_refund (payment_id, request_key);
CREATE INDEX merchant_refund_wanted ON merchant_refund (created_at, id) WHERE state = 'wanted';

CREATE TABLE merchant_payout (
    processor_id TEXT PRIMARY KEY,
    merchant_id TEXT NOT NULL REFERENCES merchant (id) ON DELETE CASCADE,
    amount BIGINT NOT NULL,
    currency TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX merchant_payout_newest ON merchant_payout (merchant_id, created_at, processor_id);
