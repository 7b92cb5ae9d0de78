-- What whoever let a device in had proven, and when: the device's session has proven no more.
ALTER TABLE device_code ADD COLUMN methods TEXT;
ALTER TABLE device_code ADD COLUMN authenticated_at BIGINT;
-- Mails and text messages are counted alike.
ALTER TABLE sms_budget RENAME TO send_budget;
