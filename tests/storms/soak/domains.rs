//! Names of the app: claimed, proven by a record, certified and served over TLS by every node. Some are removed again, and some
//! are claimed by an app of another organization as well, which must not get them.
use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    Area, Soak,
    ledger::{Domain, DomainState},
    names::Page,
};
use crate::{one_node::Dice, support::people::text};

const AREA: Area = Area::Domains;
/// Names below one registered domain: an installation orders 45 certificates of it in a week.
const OF_DOMAIN: u64 = 20;
/// An installation orders 250 certificates in three hours: so many names come at once, and one more each time after this.
const AT_ONCE: u64 = 40;
const THEN_EVERY: Duration = Duration::from_secs(75);
/// A domain is checked once in ten seconds.
const BETWEEN_CHECKS: Duration = Duration::from_secs(10);
/// Two minutes pass before another node goes on with the order of a node that died.
const PATIENCE: Duration = Duration::from_mins(6);
/// What is under way at the end is waited for so long.
const LAST: Duration = Duration::from_secs(5);
/// The status of a request to a host that the connection is not for. It stands for a handshake without a certificate here.
const MISDIRECTED: u16 = 421;

impl Soak {
    pub fn own_domains(&self, dice: &mut Dice) {
        while !self.is_over() {
            let due = AT_ONCE + self.began.elapsed().as_secs() / THEN_EVERY.as_secs();
            if self.note(|ledger| ledger.domain_names) < due {
                self.own_domain(dice);
            }
            Self::pause(dice, 2000);
        }
    }

    fn own_domain(&self, dice: &mut Dice) -> Option<()> {
        let number = self.note(|ledger| {
            ledger.domain_names += 1;
            ledger.domain_names
        });
        let name = format!("shop{number}.soak{}.test", number / OF_DOMAIN);
        let proof = self.claim(dice, &self.app, &name)?;
        let claimed = Domain { state: DomainState::Claimed, since: Instant::now(), is_contested: false };
        self.note(|ledger| ledger.domains.insert(name.clone(), claimed));
        self.publish_record(&proof_name(&name), &proof)?;
        self.publish_record(&name, "1 IN A 127.0.0.1")?;
        self.wait_until_active(dice, &name)?;
        self.set_state(&name, DomainState::Active);
        thread::sleep(Duration::from_secs(2));
        for node in 0..self.world.nodes.len() {
            self.look_secured(node, &name, "/");
        }
        match dice.roll(3) {
            0 => self.give_up(dice, &name),
            1 => self.contest(dice, &name),
            _ => Some(()),
        }
    }

    /// Claims a name for an app; answers the record that proves it.
    fn claim(&self, dice: &mut Dice, app: &str, name: &str) -> Option<String> {
        let wish = json!({ "appId": app, "domain": name });
        let said = self.ask(AREA, dice, "POST /domains/onboard", &self.bearer(), &wish, &[200])?.json();
        let record = &said["records"][0];
        if said["status"] != "pending_ownership" || record["name"] != proof_name(name) {
            self.wrong(format!("{name} was claimed, and is {said}"));
            return None;
        }
        Some(format!("1 IN TXT \"{}\"", text(&record["value"])))
    }

    fn publish_record(&self, name: &str, record: &str) -> Option<()> {
        let is_served = self.world.names.add(name, &[record.to_owned()]);
        if !is_served {
            println!("the name server does not serve what was written");
        }
        is_served.then_some(())
    }

    fn set_state(&self, name: &str, state: DomainState) {
        self.note(|ledger| {
            let domain = ledger.domains.get_mut(name).unwrap();
            (domain.state, domain.since) = (state, Instant::now());
        });
    }

    fn is_active(&self, name: &str) -> bool {
        self.note(|ledger| ledger.domains.get(name).is_some_and(|domain| domain.state == DomainState::Active))
    }

    fn domain(app: &str, name: &str) -> String {
        format!("/domains/onboard/{app}/{name}")
    }

    /// Asks for checks until the name is served.
    fn wait_until_active(&self, dice: &mut Dice, name: &str) -> Option<()> {
        let (began, path) = (Instant::now(), Self::domain(&self.app, name));
        let mut checked: Option<Instant> = None;
        loop {
            let is_due = checked.is_none_or(|at| at.elapsed() > BETWEEN_CHECKS);
            if is_due {
                checked = Some(Instant::now());
            }
            let request = if is_due { format!("POST {path}/check") } else { format!("GET {path}") };
            let said = self.ask(AREA, dice, &request, &self.bearer(), &Value::Null, &[200, 429])?.json();
            match said["status"].as_str() {
                Some("active") => return Some(()),
                // It failed too often within the hour, as faults go: the rest of it is waited for.
                Some("issuing") if said["reason"] == "ca_rate_limited" => return None,
                Some("pending_ownership" | "pending_dns" | "issuing") | None => {}
                Some(_) => {
                    self.wrong(format!("{name} is proven and leads here, and is {said}"));
                    return None;
                }
            }
            if self.is_over() && began.elapsed() > LAST {
                return None;
            }
            if began.elapsed() > PATIENCE && !self.windows.paused() {
                self.wrong(format!("{name} is never served: {said}"));
                return None;
            }
            thread::sleep(Duration::from_millis(200 + dice.roll(200)));
        }
    }

    /// Removes a name: no node serves it any more.
    fn give_up(&self, dice: &mut Dice, name: &str) -> Option<()> {
        self.set_state(name, DomainState::Leaving);
        let path = format!("DELETE {}", Self::domain(&self.app, name));
        let reply = self.ask(AREA, dice, &path, &self.bearer(), &Value::Null, &[204, 404])?;
        if reply.status == 404 && reply.unanswered == 0 {
            self.wrong(format!("{name} was lost before it was removed"));
        }
        let removed = Instant::now();
        self.set_state(name, DomainState::Removed);
        self.world.names.remove(name);
        self.world.names.remove(&proof_name(name));
        thread::sleep(Duration::from_secs(2));
        for node in 0..self.world.nodes.len() {
            let Some(page) = self.open(node, name, "/") else { continue };
            if page.status != MISDIRECTED && !self.windows.cut_off(removed) {
                self.wrong(format!("{name} was removed, and node {node} answers {}", page.status));
            }
        }
        Some(())
    }

    /// Another app claims the name, and has a record of its own beside that of the app which has it.
    fn contest(&self, dice: &mut Dice, name: &str) -> Option<()> {
        let proof = self.claim(dice, &self.rival, name)?;
        self.note(|ledger| ledger.domains.get_mut(name).unwrap().is_contested = true);
        self.publish_record(&proof_name(name), &proof)?;
        let path = Self::domain(&self.rival, name);
        let check = format!("POST {path}/check");
        self.ask(AREA, dice, &check, &self.bearer(), &Value::Null, &[200, 429])?;
        let said = self.ask(AREA, dice, &format!("GET {path}"), &self.bearer(), &Value::Null, &[200])?.json();
        self.is_refused(name, &said);
        Some(())
    }

    fn is_refused(&self, name: &str, said: &Value) {
        if said["status"] != "pending_ownership"
            || said["reason"] != "contested"
            || said["ownership"]["status"] != "pending"
        {
            self.wrong(format!("{name} has a proof that stands, and another app has {said}"));
        }
    }

    /// Browsers at the edge of one node.
    pub fn browse(&self, node: usize) {
        let mut dice = Dice(self.options.seed ^ 0xb0 ^ node as u64);
        while !self.is_over() {
            // Some are not served yet: whoever waits for a name opens it again and again.
            let settled = |domain: &Domain| {
                domain.state == DomainState::Claimed
                    || domain.state == DomainState::Active && domain.since.elapsed() > Duration::from_secs(2)
            };
            let there: Vec<String> = self.note(|ledger| {
                let all = ledger.domains.iter().filter(|(_, domain)| settled(domain));
                all.map(|(name, _)| name.clone()).collect()
            });
            if !there.is_empty() {
                let name = &there[usize::try_from(dice.roll(there.len() as u64)).unwrap()];
                self.look_secured(node, name, ["/", "/long.txt"][usize::from(dice.roll(4) == 0)]);
            }
            thread::sleep(Duration::from_millis(150));
        }
    }

    /// Opens a page of a name; what is read is the site of the app. Answers the certificate.
    fn look_secured(&self, node: usize, name: &str, path: &str) -> Option<Vec<u8>> {
        let (began, was_active) = (Instant::now(), self.is_active(name));
        let page = self.open(node, name, path)?;
        // It may be removed by now.
        if !was_active || !self.is_active(name) {
            return None;
        }
        if page.status == MISDIRECTED {
            if !self.windows.excuse(began, Area::Sites, Some(node)) {
                self.wrong(format!("{name} is active, and node {node} has no certificate of it"));
            }
            return None;
        }
        self.is_whole(node, path, began, page.status, &page.body)?;
        Some(page.certificate)
    }

    fn open(&self, node: usize, name: &str, path: &str) -> Option<Page> {
        let (to, line) = (self.world.nodes[node].secured, format!("GET https://{name}{path}"));
        let mut certificate = vec![];
        let (status, body) = self.count_request(Area::Sites, Some(node), &line, || {
            let Some(page) = self.world.names.fetch(to, name, path)? else { return Ok((MISDIRECTED, vec![])) };
            certificate = page.certificate;
            Ok((page.status, page.body))
        })?;
        Some(Page { certificate, status, body })
    }

    pub fn compare_domains(&self) {
        let domains = self.note(|ledger| ledger.domains.clone());
        for (name, domain) in &domains {
            let path = Self::domain(&self.app, name);
            match domain.state {
                DomainState::Active => self.compare_served(name, &path),
                DomainState::Removed => self.compare_removed(name, &path),
                // It is there, whatever it has come to.
                DomainState::Claimed => _ = self.at_each(&path),
                DomainState::Leaving => {}
            }
            if domain.is_contested {
                let rival = Self::domain(&self.rival, name);
                self.at_each(&rival).iter().for_each(|said| self.is_refused(name, said));
            }
        }
    }

    /// Every node serves the name, with one and the same certificate.
    fn compare_served(&self, name: &str, path: &str) {
        for (node, said) in self.at_each(path).iter().enumerate() {
            if said["status"] != "active" || said["certificate"]["status"] != "valid" {
                self.lost(format!("{name} is active, and node {node} says {said}"));
            }
        }
        let nodes = 0..self.world.nodes.len();
        let served = |node| self.open(node, name, "/").filter(|page| page.status != MISDIRECTED);
        let look = |node| {
            self.in_the_end(|| served(node))?;
            self.look_secured(node, name, "/")
        };
        let certificates: Vec<_> = nodes.map(look).collect();
        let has_one = certificates.iter().all(|one| one.as_ref().is_some_and(|bytes| !bytes.is_empty()));
        if !has_one {
            self.lost(format!("{name} is active, and not every node serves it"));
        } else if certificates.iter().any(|one| *one != certificates[0]) {
            self.wrong(format!("the nodes have different certificates of {name}"));
        }
    }

    fn compare_removed(&self, name: &str, path: &str) {
        for node in 0..self.world.nodes.len() {
            let status = self.in_the_end(|| self.open(node, name, "/")).map(|page| page.status);
            let shown = self.answer(node, path, &self.bearer()).0;
            if (status, shown) != (Some(MISDIRECTED), 404) {
                self.wrong(format!("{name} was removed, and node {node} answers {status:?}, the API {shown}"));
            }
        }
    }

    /// What a node answers once the machine has time for it.
    fn in_the_end<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        let began = Instant::now();
        loop {
            let found = look();
            if found.is_some() || began.elapsed() > Duration::from_secs(20) && !self.windows.paused() {
                return found;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

fn proof_name(name: &str) -> String {
    format!("_janua-challenge.{name}")
}
