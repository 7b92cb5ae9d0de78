#!/usr/bin/env python3
"""Changes to a profile on PostgreSQL with a slow disk, beside pgbench with the same statements.

    bench/postgres.py target/dist/janua

32 clients, each a person of its own; commits take 4 ms (commit_delay). Both take turns, nine rounds, and the median of
the ratios counts. Then once with one person for all clients, and how many round trips and commits a change costs.
"""
import asyncio, glob, json, os, re, signal, statistics, subprocess, sys, tempfile, time, urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLIENTS, ROUNDS, SECONDS = 32, 9, 3
PASSWORD = "correct horse battery staple"
PGBENCH = sorted(glob.glob("/usr/lib/postgresql/*/bin/pgbench"))[-1]
SAME_STATEMENTS = r"""
SELECT id FROM bench_person WHERE n = :client_id \gset
BEGIN;
SELECT * FROM account WHERE id = :id FOR NO KEY UPDATE;
UPDATE account SET name = 'Bench', bio = NULL, accepts_marketing = FALSE, updated_at = 1 WHERE id = :id;
INSERT INTO audit_event (id, type, webhook, account_id, actor, target, org_id, app_id, ip, user_agent, at, details)
VALUES (gen_random_uuid(), 'PROFILE_UPDATED', 'user.updated', :id, :id, :id, NULL, NULL, '127.0.0.1', NULL, 1, '{"fields":["name"]}');
SELECT app.id FROM app LEFT JOIN app_user ON app_user.app_id = app.id AND app_user.account_id = :id
WHERE app.has_webhooks AND app.id IN (SELECT app_id FROM app_user WHERE account_id = :id);
INSERT INTO bench_notice (body) VALUES ('["{}"]');
COMMIT;
"""


def sql(url, text):
    done = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text, url], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def call(base, method, path, body, token=""):
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    asked = urllib.request.Request(base + path, json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(asked) as answer:
        return json.loads(answer.read() or b"null")


def sign_up(base, outbox, number):
    email = f"p{number}@example.com"
    call(base, "POST", "/auth/register", {"email": email, "password": PASSWORD, "name": "Bench"})
    for _ in range(400):
        for mail in outbox.glob("*"):
            text = mail.read_text()
            if f"To: {email}" in text:
                token = re.search(r"\?token=([A-Za-z0-9_-]+)", text)[1]
                call(base, "POST", "/auth/verify-email", {"token": token})
                signed_in = call(base, "POST", "/auth/login", {"email": email, "password": PASSWORD, "options": {"tokenDelivery": "body"}})
                return signed_in["accessToken"]
        time.sleep(0.05)
    raise SystemExit(f"no mail to {email}")


async def client(port, token, until, waits):
    body = b'{"name":"Bench"}'
    request = (f"PATCH /user/profile HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer {token}\r\n"
               f"content-length: {len(body)}\r\n\r\n").encode() + body
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (started := time.perf_counter()) < until:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
        waits.append(time.perf_counter() - started)
    writer.close()


def load(port, tokens):
    waits = []

    async def all_of_them():
        until = time.perf_counter() + SECONDS
        await asyncio.gather(*(client(port, token, until, waits) for token in tokens))

    asyncio.run(all_of_them())
    return len(waits) / SECONDS, statistics.median(waits) * 1000


def pgbench(url, script):
    said = subprocess.run([PGBENCH, "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2", "-T", str(SECONDS), "-f", script, url],
                          capture_output=True, text=True, check=True).stdout
    return float(re.search(r"tps = ([\d.]+)", said)[1])


def main(janua):
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o711)
        server, data = Path(place, "server"), Path(place, "data")
        slow_disk = {"POSTGRES_OPTIONS": "-c fsync=on -c synchronous_commit=on"}
        subprocess.run([ROOT / "scripts/postgres", "start", server], check=True, stdout=subprocess.PIPE, env=os.environ | slow_disk)
        url = f"postgres://janua@127.0.0.1:{(server / 'port').read_text().strip()}/postgres"
        try:
            for setting in ("commit_delay = 4000", "commit_siblings = 0"):
                sql(url, f"ALTER SYSTEM SET {setting}")
            sql(url, "SELECT pg_reload_conf()")
            settings = {"JANUA_DATABASE_URL": url, "JANUA_RATE_LIMITS": "off", "JANUA_DATABASE_CONNECTIONS": str(CLIENTS)}
            data.mkdir()
            process = subprocess.Popen([os.path.abspath(janua), "serve", "--data-dir", data, "--listen", "127.0.0.1:0"], cwd=data,
                                       env=os.environ | settings, stdout=subprocess.PIPE, stderr=open(Path(place, "log"), "w"), text=True)
            try:
                port = int(re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())[1])
                tokens = [sign_up(f"http://127.0.0.1:{port}", data / "outbox", number) for number in range(CLIENTS)]
                sql(url, "CREATE TABLE bench_notice (body TEXT NOT NULL); CREATE TABLE bench_person AS "
                         "SELECT CAST(ROW_NUMBER() OVER (ORDER BY id) - 1 AS INT) AS n, id FROM account")
                script = Path(place, "same.sql")
                script.write_text(SAME_STATEMENTS)
                load(port, tokens), pgbench(url, script)
                ratios, ours, theirs, waits = [], [], [], []
                for number in range(ROUNDS):
                    limit = pgbench(url, script)
                    rate, wait = load(port, tokens)
                    ratios.append(rate / limit), ours.append(rate), theirs.append(limit), waits.append(wait)
                    print(f"round {number + 1}: {rate:.0f}/s (p50 {wait:.1f} ms), pgbench {limit:.0f}/s: {rate / limit:.2f}")
                print(f"each its own person: {statistics.median(ours):.0f}/s, p50 {statistics.median(waits):.1f} ms; pgbench "
                      f"{statistics.median(theirs):.0f}/s; median of the ratios {statistics.median(ratios):.2f}")
                rate, wait = load(port, tokens[:1] * CLIENTS)
                print(f"one person: {rate:.0f}/s, p50 {wait:.1f} ms")
                for name, value in (("commit_delay", 0),):
                    sql(url, f"ALTER SYSTEM SET {name} = {value}")
                sql(url, "SELECT pg_reload_conf()")
                time.sleep(1)
                rate, wait = load(port, tokens)
                print(f"with a quick disk: {rate:.0f}/s, p50 {wait:.1f} ms; pgbench {pgbench(url, script):.0f}/s")
                rate, wait = load(port, tokens[:1] * CLIENTS)
                print(f"with a quick disk, one person: {rate:.0f}/s, p50 {wait:.1f} ms")
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()
        finally:
            subprocess.run([ROOT / "scripts/postgres", "stop", server], stdout=subprocess.DEVNULL)


main(*sys.argv[1:])
