-- Who pays: an organization, or an app of it with a plan of its own (app_id, empty for the organization). Money is history: rows
-- stay when the organization is deleted, without its email.
CREATE TABLE billing_subject (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    -- The processor whose ids these are, and whether its money is real.
    processor TEXT NOT NULL,
    livemode BOOLEAN NOT NULL,
    payer TEXT NOT NULL,
    email TEXT,
    customer TEXT,
    connected_at BIGINT,
    -- The last state of the subscription that was read from the processor.
    subscription TEXT,
    item TEXT,
    status TEXT NOT NULL,
    plan TEXT NOT NULL,
    price_interval TEXT,
    amount BIGINT,
    currency TEXT,
    seats BIGINT NOT NULL,
    per_member BOOLEAN NOT NULL,
    period_start BIGINT,
    period_end BIGINT,
    trial_ends_at BIGINT,
    cancel_at_period_end BOOLEAN NOT NULL,
    cancel_at BIGINT,
    past_due_since BIGINT,
    -- A lower plan, from a moment on.
    pending_plan TEXT,
    pending_at BIGINT,
    -- The plan before, until when: usage of that time is billed by it.
    last_plan TEXT,
    last_plan_until BIGINT,
    trial_used_at BIGINT,
    -- The number of the last read that began, and of the one that was applied: an older read never replaces a newer one.
    reads BIGINT NOT NULL,
    applied BIGINT NOT NULL,
    read_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT
);
CREATE UNIQUE INDEX billing_subject_org_id_app_id_key ON billing_subject (org_id, app_id) WHERE deleted_at IS NULL;
CREATE INDEX billing_subject_app ON billing_subject (app_id) WHERE app_id <> '';
CREATE UNIQUE INDEX billing_subject_subscription_key ON billing_subject (subscription) WHERE subscription IS NOT NULL;
CREATE INDEX billing_subject_customer ON billing_subject (customer) WHERE customer IS NOT NULL;
CREATE INDEX billing_subject_live ON billing_subject (status, id) WHERE status IN ('trialing', 'active', 'past_due', 'incomplete', 'unpaid', 'paused');

-- Checkouts. One is open for a subject at a time.
CREATE TABLE billing_checkout (
    id TEXT PRIMARY KEY,
    subject_id TEXT NOT NULL REFERENCES billing_subject (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    plan TEXT NOT NULL,
    price_interval TEXT NOT NULL,
    seats BIGINT NOT NULL,
    trial_days BIGINT NOT NULL,
    price TEXT NOT NULL,
    state TEXT NOT NULL,
    processor_id TEXT,
    url TEXT,
    success_url TEXT NOT NULL,
    cancel_url TEXT NOT NULL,
    expires_at BIGINT,
    created_by TEXT,
    created_at BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE UNIQUE INDEX billing_checkout_subject_id_key ON billing_checkout (subject_id) WHERE state IN ('creating', 'open');
CREATE UNIQUE INDEX billing_checkout_processor_id_key ON billing_checkout (processor_id) WHERE processor_id IS NOT NULL;
CREATE INDEX billing_checkout_open ON billing_checkout (created_at, id) WHERE state IN ('creating', 'open');

-- The processor's prices of our plans.
CREATE TABLE billing_price (
    processor TEXT NOT NULL,
    livemode BOOLEAN NOT NULL,
    plan TEXT NOT NULL,
    price_interval TEXT NOT NULL,
    amount BIGINT NOT NULL,
    currency TEXT NOT NULL,
    processor_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (processor, livemode, plan, price_interval, amount, currency)
);
CREATE UNIQUE INDEX billing_price_processor_id_key ON billing_price (processor_id);

-- Means of payment that had a trial.
CREATE TABLE billing_trial (
    fingerprint TEXT PRIMARY KEY,
    subject_id TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- Invoices as they were read last.
CREATE TABLE billing_invoice (
    id TEXT PRIMARY KEY,
    subject_id TEXT NOT NULL REFERENCES billing_subject (id) ON DELETE CASCADE,
    processor_id TEXT NOT NULL,
    livemode BOOLEAN NOT NULL,
    number TEXT,
    status TEXT NOT NULL,
    plan TEXT NOT NULL,
    total BIGINT NOT NULL,
    paid BIGINT NOT NULL,
    refunded BIGINT NOT NULL,
    -- What was lost in disputes.
    lost BIGINT NOT NULL,
    fee BIGINT NOT NULL,
    overage BIGINT NOT NULL,
    currency TEXT NOT NULL,
    period_start BIGINT NOT NULL,
    period_end BIGINT NOT NULL,
    url TEXT,
    payment_intent TEXT,
    charge TEXT,
    disputed BOOLEAN NOT NULL,
    lines TEXT NOT NULL,
    applied BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    paid_at BIGINT
);
CREATE UNIQUE INDEX billing_invoice_processor_id_key ON billing_invoice (processor_id);
CREATE INDEX billing_invoice_newest ON billing_invoice (subject_id, created_at, id);
CREATE INDEX billing_invoice_paid ON billing_invoice (paid_at, id) WHERE paid_at IS NOT NULL;
CREATE INDEX billing_invoice_intent ON billing_invoice (payment_intent) WHERE payment_intent IS NOT NULL;

-- Usage beyond what a plan includes, frozen for an invoice. A later revision of a period holds what came late.
CREATE TABLE billing_item (
    id TEXT PRIMARY KEY,
    subject_id TEXT NOT NULL REFERENCES billing_subject (id) ON DELETE CASCADE,
    subscription TEXT NOT NULL,
    meter TEXT NOT NULL,
    period_start BIGINT NOT NULL,
    period_end BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    -- All that was used in the period, what the plan included of it, and what this line is about.
    used BIGINT NOT NULL,
    included BIGINT NOT NULL,
    quantity BIGINT NOT NULL,
    unit_price TEXT NOT NULL,
    amount BIGINT NOT NULL,
    currency TEXT NOT NULL,
    label TEXT NOT NULL,
    invoice TEXT NOT NULL,
    processor_id TEXT,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX billing_item_subscription_meter_period_start_revision_key
    ON billing_item (subscription, meter, period_start, revision);
CREATE INDEX billing_item_invoice ON billing_item (invoice, id);
CREATE INDEX billing_item_waiting ON billing_item (created_at, id) WHERE processor_id IS NULL;

-- What processors told us: the inbox of both webhooks.
CREATE TABLE processor_event (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    livemode BOOLEAN NOT NULL,
    account TEXT,
    object_id TEXT,
    digest TEXT NOT NULL,
    body TEXT NOT NULL,
    received_at BIGINT NOT NULL,
    -- received, or pulled when the webhook was lost
    came_by TEXT NOT NULL,
    outcome TEXT NOT NULL,
    detail TEXT,
    org_id TEXT,
    handled_at BIGINT
);
CREATE UNIQUE INDEX processor_event_source_event_id_key ON processor_event (source, event_id);
CREATE INDEX processor_event_newest ON processor_event (received_at, id);
