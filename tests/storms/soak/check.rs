//! After the last fault: what is there is compared with what was acknowledged, at every node.
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use janua_client::verify_webhook;
use serde_json::{Value, json};

use super::{Area, Soak, people::login};
use crate::{
    one_node::Dice,
    support::{people::text, receiver::Came},
};

/// By event and what it is about: the IDs of the events.
type Arrived = BTreeMap<(String, String), BTreeSet<String>>;

impl Soak {
    /// Acknowledged mails, and emails that signed up, that no mail reached.
    pub fn missing_mails(&self) -> Vec<String> {
        let mut inbox = self.inbox.lock().unwrap();
        inbox.refresh();
        self.note(|ledger| {
            let mails =
                ledger.mails.iter().filter(|id| !inbox.times.contains_key(*id)).map(|id| format!("mail {id}"));
            let people = ledger.signed_up.iter().filter(|email| !inbox.has_code(email));
            mails.chain(people.map(|email| format!("mail to {email}"))).collect()
        })
    }

    fn arrived(&self) -> Arrived {
        let mut arrived = Arrived::new();
        for Came { body, .. } in self.world.receiver.all().iter() {
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            let about = [&body["details"]["keyId"], &body["user"]["id"]].into_iter().find_map(Value::as_str);
            let id = [&body["eventId"], &body["id"]].into_iter().find_map(Value::as_str);
            if let (Some(event), Some(about), Some(id)) = (body["event"].as_str(), about, id) {
                arrived.entry((event.to_owned(), about.to_owned())).or_default().insert(id.to_owned());
            }
        }
        arrived
    }

    /// Acknowledged changes whose event has not come to the receiver.
    pub fn missing_deliveries(&self) -> Vec<String> {
        let arrived = self.arrived();
        let count = |event: &str, about: &str| {
            arrived.get(&(event.to_owned(), about.to_owned())).map_or(0, BTreeSet::len) as u64
        };
        let mut missing = vec![];
        self.note(|ledger| {
            for id in ledger.keys.iter().chain(&ledger.deleted_keys).filter(|id| !ledger.silent.contains(*id)) {
                missing.extend((count("audit.APP_KEY_CREATED", id) == 0).then(|| format!("creation of key {id}")));
            }
            for id in &ledger.deleted_keys {
                missing.extend((count("audit.APP_KEY_DELETED", id) == 0).then(|| format!("deletion of key {id}")));
            }
            for person in ledger.people.iter().filter(|person| person.sign_ins > 0) {
                let came = count("user.signed_in", &person.id);
                let lacks = person.sign_ins.saturating_sub(came);
                missing.extend((lacks > 0).then(|| format!("{lacks} sign-ins of {}", person.email)));
            }
        });
        missing
    }

    /// What a node answers in the end. It has the time that it needs while the machine has other work.
    pub fn answer(&self, node: usize, path: &str, more: &str) -> (u16, Vec<u8>) {
        let (began, to) = (Instant::now(), self.world.nodes[node].address);
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost{more}");
        while began.elapsed() < Duration::from_mins(1) || self.windows.paused() {
            if let Some(answer) = self.once(Area::Reads, Some(node), to, &head, b"") {
                return answer;
            }
            thread::sleep(Duration::from_millis(100));
        }
        (0, vec![])
    }

    /// At every node.
    pub fn at_each(&self, path: &str) -> Vec<Value> {
        let ask = |node| {
            let (status, said) = self.answer(node, path, &self.bearer());
            if status != 200 {
                self.wrong(format!("{path} at node {node} in the end: {status} {}", String::from_utf8_lossy(&said)));
            }
            serde_json::from_slice(&said).unwrap_or_default()
        };
        (0..self.world.nodes.len()).map(ask).collect()
    }

    /// A field of everything that a node lists.
    pub fn listed_at(&self, node: usize, path: &str, list: &str, field: &str) -> BTreeSet<String> {
        self.rows_at(node, &format!("{path}?limit=200"), list).iter().map(|one| text(&one[field])).collect()
    }

    /// Everything that a node lists, on all pages.
    pub fn rows_at(&self, node: usize, path: &str, list: &str) -> Vec<Value> {
        let (mut there, mut cursor) = (vec![], String::new());
        loop {
            let path = format!("{path}{cursor}");
            let (status, said) = self.answer(node, &path, &self.bearer());
            let said: Value = serde_json::from_slice(&said).unwrap_or_default();
            if status != 200 {
                self.wrong(format!("{path} at node {node} in the end: {status} {said}"));
            }
            there.extend(said[list].as_array().into_iter().flatten().cloned());
            match said["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return there,
            }
        }
    }

    pub fn lost(&self, what: String) {
        self.tally(|tally| tally.lost.push(what));
    }

    pub fn compare(&self) {
        let mut dice = Dice(self.options.seed ^ 0xe4d);
        // A token for all that follows.
        let access = self.ask(Area::People, &mut dice, "POST /auth/login", "", &login(super::world::OWNER), &[200]);
        if let Some(reply) = access {
            *self.access.write().unwrap() = text(&reply.json()["accessToken"]);
        }
        self.compare_mails();
        self.compare_deliveries();
        self.compare_usage();
        self.compare_figures();
        self.compare_apps();
        self.compare_agents();
        self.compare_directory();
        self.compare_skills();
        self.compare_payments(&mut dice);
        self.compare_domains();
        self.compare_sites(&mut dice);
        self.compare_people(&mut dice);
        for line in self.world.panics() {
            self.wrong(format!("a node says: {line}"));
        }
    }

    fn compare_mails(&self) {
        self.missing_mails().into_iter().for_each(|what| self.lost(what));
        let inbox = self.inbox.lock().unwrap();
        let again = inbox.times.values().map(|times| times - 1).sum();
        let known = self.note(|ledger| ledger.mails.clone());
        let soaked = inbox.subjects.iter().filter(|(_, subject)| *subject == "Soak");
        let strangers = soaked.filter(|(id, _)| !known.contains(*id)).count();
        let allowed = self.tally(|tally| {
            tally.again.insert("mails under their Message-ID", again);
            tally.answers_lost(Area::Mail)
        });
        if strangers as u64 > allowed {
            self.wrong(format!("{strangers} mails were sent under IDs that no answer named"));
        }
    }

    fn compare_deliveries(&self) {
        self.missing_deliveries().into_iter().for_each(|what| self.lost(format!("delivery: {what}")));
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for Came { signature, body, at } in self.world.receiver.all().iter() {
            if verify_webhook(signature, body, &self.hook_secret, *at).is_err() {
                self.wrong("a delivery is not genuine".to_owned());
            }
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            *times.entry(body["deliveryId"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        let again = times.values().map(|times| times - 1).sum();
        self.tally(|tally| tally.again.insert("deliveries under their ID", again));
        // One change is one event, however often it was asked for and delivered.
        for ((event, about), ids) in self.arrived() {
            if event.starts_with("audit.APP_KEY_") && ids.len() > 1 {
                self.wrong(format!("{event} of {about} has {} events", ids.len()));
            }
        }
    }

    fn compare_usage(&self) {
        let (events, used) = self.note(|ledger| (ledger.events, ledger.used));
        let expected = (Some(events), Some(used));
        for (node, said) in self.at_each(&format!("/usage?appId={}&meter=api_calls", self.app)).iter().enumerate() {
            let row = &said["usage"][0];
            if (row["events"].as_u64(), row["value"].as_u64()) != expected {
                self.lost(format!("usage at node {node}: {row}, acknowledged are {events} events worth {used}"));
            }
        }
        let meters = self.at_each(&format!("/usage/meters?appId={}", self.app));
        let value = |said: &Value, name: &str| {
            let all = said["meters"].as_array().into_iter().flatten();
            all.filter(|meter| meter["name"] == name).find_map(|meter| meter["used"].as_u64())
        };
        let (keys, deployed) = self.note(|ledger| (ledger.keys.len() as u64, ledger.deployed.len() as u64));
        let bytes: usize = self.note(|ledger| ledger.objects.values().map(|(length, _)| length).sum());
        let domains = self.note(|ledger| ledger.domains.values().filter(|one| one.is_there()).count() as u64);
        let least = [
            ("api_calls", used),
            ("keys", keys),
            ("domains", domains),
            ("deploys", deployed),
            ("storage_bytes", bytes as u64),
        ];
        for (name, least) in least {
            let said: Vec<_> = meters.iter().map(|said| value(said, name)).collect();
            let counts = [("api_calls", Area::Usage), ("keys", Area::Apps), ("domains", Area::Domains)];
            let counted = counts.into_iter().find(|(exact, _)| *exact == name);
            let is_exact = counted.is_some_and(|(_, area)| self.tally(|tally| tally.answers_lost(area) == 0));
            let is_right = said.iter().all(|one| if is_exact { *one == Some(least) } else { *one >= Some(least) });
            if !is_right || said.iter().any(|one| *one != said[0]) {
                self.wrong(format!("the quota {name} is {said:?}, acknowledged is {least}"));
            }
        }
    }

    fn compare_figures(&self) {
        let (least, most) = self.note(|ledger| {
            let known: u64 = ledger.people.iter().map(|person| person.sign_ins).sum();
            (known, known + ledger.people.iter().map(|person| person.perhaps).sum::<u64>())
        });
        for (node, said) in self.at_each(&format!("/analytics/app/{}/overview", self.app)).iter().enumerate() {
            let counted = said["events"]["signIns"].as_u64().unwrap_or_default();
            if !(least..=most).contains(&counted) {
                self.wrong(format!("node {node} counts {counted} sign-ins, and there were {least} to {most}"));
            }
        }
    }

    fn compare_apps(&self) {
        let (keys, deleted, renamed) =
            self.note(|ledger| (ledger.keys.clone(), ledger.deleted_keys.clone(), ledger.renamed));
        for node in 0..self.world.nodes.len() {
            let there = self.listed_at(node, &format!("/apps/{}/keys", self.app), "keys", "id");
            keys.difference(&there).for_each(|id| self.lost(format!("key {id} at node {node}")));
            deleted.intersection(&there).for_each(|id| self.wrong(format!("deleted key {id} at node {node}")));
            let more = there.difference(&keys).count() as u64;
            if more > self.tally(|tally| tally.answers_lost(Area::Apps)) {
                self.wrong(format!("{more} keys at node {node} that no answer named"));
            }
        }
        for (node, said) in self.at_each(&format!("/apps/{}", self.app)).iter().enumerate() {
            let name = said["name"].as_str().unwrap_or_default();
            let number = name.strip_prefix("Shop ").and_then(|number| number.parse::<u64>().ok());
            if number < Some(renamed) {
                self.lost(format!("the name \"Shop {renamed}\": node {node} says {name:?}"));
            }
        }
    }

    fn compare_agents(&self) {
        let agents: Vec<_> = self.note(|ledger| {
            let all = ledger.agents.iter().filter(|agent| !agent.is_deleted);
            all.map(|agent| (agent.id.clone(), agent.spent, agent.perhaps, agent.is_suspended)).collect()
        });
        let deleted = self.note(|ledger| {
            let all = ledger.agents.iter().filter(|agent| agent.is_deleted);
            all.map(|agent| agent.id.clone()).collect::<Vec<_>>()
        });
        for id in deleted {
            for node in 0..self.world.nodes.len() {
                let (status, _) = self.answer(node, &format!("/framework-agent/{id}"), &self.bearer());
                if status != 404 {
                    self.wrong(format!("agent {id} was deleted, and node {node} answers {status}"));
                }
            }
        }
        for (id, spent, perhaps, is_suspended) in agents {
            for (node, said) in self.at_each(&format!("/framework-agent/{id}")).iter().enumerate() {
                let agent = &said["agent"];
                let used = agent["limits"][0]["used"].as_u64();
                if used != Some(spent) && used != Some(spent + perhaps) {
                    self.lost(format!("agent {id} spent {spent}, and node {node} says {agent}"));
                }
                if (agent["status"] == "suspended") != is_suspended && perhaps == 0 {
                    self.wrong(format!("agent {id} is suspended: {is_suspended}, and node {node} says {agent}"));
                }
            }
        }
    }

    fn compare_sites(&self, dice: &mut Dice) {
        let (objects, deleted, last) = self.note(|ledger| {
            let last = ledger.deployed.iter().map(|(_, number)| *number).max();
            (ledger.objects.clone(), ledger.deleted_objects.clone(), last)
        });
        for (id, (length, seed)) in objects {
            if self.is_stored(dice, &id, length, seed).is_none() {
                self.lost(format!("object {id}"));
            }
        }
        let more = format!("{}{}", self.bearer(), Self::key(&self.public));
        for id in deleted {
            self.ask(Area::Storage, dice, &format!("GET /storage/objects/{id}"), &more, &Value::Null, &[404]);
        }
        for node in 0..self.world.nodes.len() {
            if self.look(node, "/long.txt") < last {
                self.lost(format!("deployment {last:?} at node {node}"));
            }
        }
        for said in self.at_each("/deployments?status=processing") {
            if said["deployments"] != json!([]) {
                self.wrong(format!("deployments go on for ever: {said}"));
            }
        }
    }

    fn compare_people(&self, dice: &mut Dice) {
        let (people, ended): (Vec<_>, _) = self
            .note(|ledger| (ledger.people.iter().map(|person| person.email.clone()).collect(), ledger.ended.clone()));
        for email in people {
            let key = Self::key(&self.public);
            if self.ask(Area::People, dice, "POST /auth/login", &key, &login(&email), &[200]).is_none() {
                self.lost(format!("account {email}"));
            }
        }
        for access in ended {
            for node in 0..self.world.nodes.len() {
                let more = format!("{}\r\nAuthorization: Bearer {access}", Self::key(&self.public));
                if self.answer(node, "/auth/me", &more).0 != 401 {
                    self.wrong(format!("an ended session lives at node {node}"));
                }
            }
        }
    }
}
