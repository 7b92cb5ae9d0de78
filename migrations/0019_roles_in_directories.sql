-- The role of a member again, where directories are read: none for somebody who is no member. It is written with the one
-- in `org_member`, which is the one that counts.
ALTER TABLE person ADD COLUMN role TEXT;
UPDATE person SET role = (SELECT org_member.role FROM org_member
                          WHERE org_member.org_id = person.org_id AND org_member.account_id = person.account_id);
CREATE INDEX person_by_role ON person (org_id, role, place) WHERE role IS NOT NULL;

-- With the group in it, so that the groups of a person are found in the index alone.
DROP INDEX person_group_member_of;
CREATE INDEX person_group_member_of ON person_group_member (org_id, person_id, group_id);
