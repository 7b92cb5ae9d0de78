-- Directories: everybody an organization knows, the groups its provider pushes, and the tokens that provider comes with.

-- How many there are, so that no list has to count. Their places are numbered from 1 to this, without gaps.
ALTER TABLE org ADD COLUMN people BIGINT NOT NULL DEFAULT 0;

-- Members, and those whom the provider announced and who have not come yet (`account_id` is null). `attributes` is what
-- the provider said, as JSON; the columns beside it are what is looked up. `is_home`: the account was made by coming in
-- here. `comes_back`: a membership ended when it was switched off, and begins again when it is switched on.
CREATE TABLE person (
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    place BIGINT NOT NULL,
    account_id TEXT REFERENCES account (id) ON DELETE SET NULL,
    source TEXT NOT NULL,
    active BOOLEAN NOT NULL,
    is_home BOOLEAN NOT NULL,
    comes_back BOOLEAN NOT NULL,
    user_name TEXT NOT NULL,
    user_name_key TEXT NOT NULL,
    external_id TEXT,
    email TEXT,
    email_key TEXT,
    attributes TEXT NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, user_name_key)
);
CREATE INDEX person_in_order ON person (org_id, place);
CREATE INDEX person_external ON person (org_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX person_address ON person (org_id, email_key) WHERE email_key IS NOT NULL;
CREATE INDEX person_of ON person (account_id) WHERE account_id IS NOT NULL;

-- The attributes again, a row for each value: `emails.value` of item 0, as it is and in lower case. Filters ask here.
CREATE TABLE person_value (
    org_id TEXT NOT NULL,
    person_id TEXT NOT NULL,
    path TEXT NOT NULL,
    item BIGINT NOT NULL,
    value TEXT NOT NULL,
    folded TEXT NOT NULL,
    PRIMARY KEY (org_id, person_id, path, item),
    FOREIGN KEY (org_id, person_id) REFERENCES person (org_id, id) ON DELETE CASCADE
);

INSERT INTO person (org_id, id, place, account_id, source, active, is_home, comes_back, user_name, user_name_key, email,
                    email_key, attributes, version, created_at, updated_at)
SELECT org_member.org_id, account.id,
       ROW_NUMBER() OVER (PARTITION BY org_member.org_id ORDER BY org_member.joined_at, account.id), account.id,
       'member', TRUE, FALSE, FALSE, COALESCE(account.email, account.id), COALESCE(account.email_key, account.id),
       account.email, account.email_key, '{}', 1, org_member.joined_at, org_member.joined_at
FROM org_member JOIN account ON account.id = org_member.account_id;
UPDATE org SET people = (SELECT COUNT(*) FROM person WHERE person.org_id = org.id);

-- Groups as the provider pushes them. Whoever is in one that stands for a role has that role; owner is none of them.
CREATE TABLE person_group (
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    display_name TEXT NOT NULL,
    display_name_key TEXT NOT NULL,
    external_id TEXT,
    role TEXT,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, display_name_key)
);
CREATE INDEX person_group_external ON person_group (org_id, external_id) WHERE external_id IS NOT NULL;

CREATE TABLE person_group_member (
    org_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    person_id TEXT NOT NULL,
    PRIMARY KEY (org_id, group_id, person_id),
    FOREIGN KEY (org_id, group_id) REFERENCES person_group (org_id, id) ON DELETE CASCADE,
    FOREIGN KEY (org_id, person_id) REFERENCES person (org_id, id) ON DELETE CASCADE
);
CREATE INDEX person_group_member_of ON person_group_member (org_id, person_id);

-- Only the hash of a token is here, and how it begins.
CREATE TABLE scim_token (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES org (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    prefix TEXT NOT NULL,
    created_by TEXT REFERENCES account (id) ON DELETE SET NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    last_used_at BIGINT
);
CREATE INDEX scim_token_newest ON scim_token (org_id, created_at, id);

-- Who made a key has seen it: it ends when they are switched off.
ALTER TABLE app_key ADD COLUMN created_by TEXT REFERENCES account (id) ON DELETE SET NULL;
CREATE INDEX app_key_by ON app_key (created_by) WHERE created_by IS NOT NULL;
