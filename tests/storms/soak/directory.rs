//! A directory that provisions users by SCIM, and versions of a skill.
use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Area, Soak};
use crate::{one_node::Dice, skills::package, support::people::text};

const AREA: Area = Area::Directory;
const MOST_VERSIONS: usize = 900;

impl Soak {
    fn scim(&self) -> String {
        format!("\r\nAuthorization: Bearer {}", self.scim)
    }

    /// Users come, get their place in the group, and some of them leave.
    pub fn provision(&self, dice: &mut Dice) {
        while !self.is_over() {
            self.employ(dice);
            Self::pause(dice, 500);
        }
    }

    fn employ(&self, dice: &mut Dice) -> Option<()> {
        let name = format!("staff{}@soak.test", self.number());
        let user = json!({ "userName": name, "emails": [{ "value": name, "primary": true }] });
        let made = self.ask(AREA, dice, "POST /scim/v2/Users", &self.scim(), &user, &[201, 409])?;
        // The first try had its effect, and its answer died with a node.
        let id = if made.status == 409 {
            let path = format!("GET /scim/v2/Users?filter=userName%20eq%20%22{name}%22");
            let found = self.ask(AREA, dice, &path, &self.scim(), &Value::Null, &[200])?.json();
            if made.unanswered == 0 {
                self.wrong(format!("{name} was there before: {found}"));
            }
            if found["totalResults"] != 1 {
                return None;
            }
            text(&found["Resources"][0]["id"])
        } else {
            text(&made.json()["id"])
        };
        self.note(|ledger| ledger.staff.insert(id.clone(), true));
        let group = format!("PATCH /scim/v2/Groups/{}", self.group);
        let change = |op: &str| match op {
            "add" => json!({ "Operations": [{ "op": op, "path": "members", "value": [{ "value": id }] }] }),
            _ => json!({ "Operations": [{ "op": op, "path": format!("members[value eq \"{id}\"]") }] }),
        };
        self.ask(AREA, dice, &group, &self.scim(), &change("add"), &[200, 204])?;
        self.note(|ledger| ledger.seated.insert(id.clone()));
        if dice.roll(3) == 0 {
            self.note(|ledger| ledger.seated.remove(&id));
            self.ask(AREA, dice, &group, &self.scim(), &change("remove"), &[200, 204])?;
            self.note(|ledger| ledger.unseated.insert(id.clone()));
        }
        if dice.roll(3) == 0 {
            let leaves = json!({ "Operations": [{ "op": "replace", "path": "active", "value": false }] });
            self.note(|ledger| ledger.staff.remove(&id));
            let path = format!("PATCH /scim/v2/Users/{id}");
            self.ask(AREA, dice, &path, &self.scim(), &leaves, &[200, 204])?;
            self.note(|ledger| ledger.staff.insert(id.clone(), false));
        }
        Some(())
    }

    /// A version of the skill after the other.
    pub fn publish_skills(&self, dice: &mut Dice) {
        let room = tempfile::tempdir().unwrap();
        // A skill has a thousand versions at most.
        while !self.is_over() && self.note(|ledger| ledger.published.len()) < MOST_VERSIONS {
            let version = format!("1.1.{}", self.number());
            let bytes = package(room.path(), &version, &format!("Version {version}."));
            let more = format!("{}\r\nContent-Type: application/gzip", self.bearer());
            // The same bytes may be sent again.
            let reply =
                self.ask_with(Area::Skills, dice, "POST /skills/acme.pdf-tools/versions", &more, &bytes, &[200, 201]);
            if reply.is_some() {
                self.note(|ledger| ledger.published.insert(version));
            }
            Self::pause(dice, 4000);
        }
    }

    pub fn compare_directory(&self) {
        let (staff, seated, unseated) =
            self.note(|ledger| (ledger.staff.clone(), ledger.seated.clone(), ledger.unseated.clone()));
        for node in 0..self.world.nodes.len() {
            let get = |path: &str| -> Value {
                let (status, said) = self.answer(node, path, &self.scim());
                if status != 200 {
                    self.lost(format!("{path} at node {node}: {status} {}", String::from_utf8_lossy(&said)));
                }
                serde_json::from_slice(&said).unwrap_or_default()
            };
            for (id, is_active) in &staff {
                let said = get(&format!("/scim/v2/Users/{id}"));
                if said["active"] != *is_active {
                    self.lost(format!("at node {node} a provisioned user is {said}, and active was {is_active}"));
                }
            }
            let said = get(&format!("/scim/v2/Groups/{}", self.group));
            let members = said["members"].as_array().into_iter().flatten();
            let there: BTreeSet<String> = members.map(|member| text(&member["value"])).collect();
            let missing: Vec<_> = seated.difference(&there).collect();
            let back: Vec<_> = unseated.intersection(&there).collect();
            if !missing.is_empty() || !back.is_empty() {
                self.lost(format!("places in the group at node {node}: {missing:?} are missing, {back:?} are back"));
            }
        }
    }

    pub fn compare_skills(&self) {
        let published = self.note(|ledger| ledger.published.clone());
        for node in 0..self.world.nodes.len() {
            let there = self.listed_at(node, "/skills/acme.pdf-tools/versions", "versions", "version");
            let missing: Vec<_> = published.difference(&there).collect();
            if !missing.is_empty() {
                self.lost(format!("versions of the skill at node {node}: {missing:?}"));
            }
        }
    }
}
