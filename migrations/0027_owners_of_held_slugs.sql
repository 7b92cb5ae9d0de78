-- Who made the app whose slug is held back, to count how many one account has.
ALTER TABLE slug_hold ADD COLUMN account_id TEXT;
CREATE INDEX slug_hold_org ON slug_hold (org_id, held_until);
CREATE INDEX slug_hold_account ON slug_hold (account_id, held_until);
