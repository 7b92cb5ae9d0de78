-- Whether whoever has a verified email address of a domain that the organization has proven becomes a member by signing in.
ALTER TABLE org ADD COLUMN auto_join BOOLEAN NOT NULL DEFAULT FALSE;

-- Who was a member and is none now: they come back by an invitation alone.
CREATE TABLE org_departure (
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    account_id TEXT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    left_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, account_id)
);
CREATE INDEX org_departure_of ON org_departure (account_id);
