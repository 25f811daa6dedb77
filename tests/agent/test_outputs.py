"""A rule for a program does not cover files that the program writes though its name does not say so."""

import pytest

from spindle.agent.fences.rules import Policy, decide, rules_of

WRITING = r"""
git apply --unsafe-paths x.patch
git apply --unsafe x.patch
git cherry-pick --strategy=a/x main
git rebase -s a/x main
git merge --strategy a/x main
git revert --strategy=a/x HEAD
git bisect view git-x/y
git config core.fsmonitor ./x get
git config core.fsmonitor ./x list
git config core.pager list
git config --file=/etc/x user.name y
git config -f.bashrc user.name '$(x)'
git config --unset core.hooksPath
git config --edit
git config edit
git config --remove-section safe
git fast-import --allow-unsafe-features
find -- . -delete
find -H -- . -fprint ../x
awk -- 'BEGIN{system("x")}'
awk -- 'BEGIN{print 1 > "x"}'
sqlite3 -- db '.shell x'
sqlite3 db -- '.output x'
less --lesskey-content=x f
less --lesskey-src=k f
less -NSo x f
tree -L 1 -aR -H .
bat cache --build --target x
bat --lessopen f
bat --generate-config-file
yq -s .a f
yq --split-exp .a f
man -C ./x ls
man --config-file=./x ls
curl -w @f https://x
curl -sw@f https://x
curl --write-out @f https://x
curl --write-out=@f https://x
curl -w $x https://x
wget https://x/%2emcp.json
wget -q https://x/AGENTS%2Emd?y
git checkout-index --prefix=../x/ -a
git checkout-index -a
git worktree add ../x
git worktree add --detach /tmp/x HEAD
git worktree move w ~/w
git bundle create F main
git fast-export --export-marks=F main
git read-tree --index-output=F HEAD
git pack-objects F
git mailinfo A B
git mailsplit -o. mbox
git bugreport -o .
git diagnose
git merge-file a b c
git interpret-trailers --in-place F
git unpack-file HEAD:a
git maintenance start
git clone https://x/y ../y
git clone https://x/y /tmp/y
git clone --separate-git-dir=../g https://x/y
git init ~/x
git init --separate-git-dir ../g
git mv a ../b
git mv a .mcp.json
git push ./evil
git push src
git push ../evil main
git push file:///srv/evil
git remote add x ./evil
git remote set-url origin /srv/evil
git lg
git archive --output=x HEAD
git archive -ox HEAD
git diff --output x
git format-patch -o x HEAD
git blame --contents x y
git svn clone x
git lfs install
git update-server-info
git credential-store store
uniq b ~/.profile
uniq b c
uniq -c b c
uniq -- b c
uniq $x c
xxd a b
xxd -r a
xxd -ps a b
xxd -l 5 a b
xxd -r -p a b
ptx -G a b
ptx --traditional a b
csplit -f ../x a 1
csplit a 1 --prefix=../x
curl -T b file:///etc/x
curl --upload-file b file:///tmp/x
ssh -vvE F host
tar -tg F -f x
tar --index-file=F -tvf x
tar --volno-file=F -tf x
curl --trace-ascii F https://x
curl --trace F https://x
curl --stderr F https://x
curl --libcurl F https://x
curl --etag-save F https://x
curl --alt-svc F https://x
curl --hsts F https://x
curl --remote-name-all https://x/y
curl --remote-header-name -O https://x/y
curl --create-dirs -o a/b https://x
curl -D F https://x
curl -c F https://x
curl --cookie-jar F https://x
curl --dump-header F https://x
curl -sO https://x/y
curl -w '%output{F}x' https://x
curl --write-out '%output{>>F}x' https://x
curl -K F
curl --ftp-create-dirs https://x
curl --some-new-option F https://x
curl $x
wget -O F https://x
wget -qO F https://x
wget -o F https://x
wget -a F https://x
wget --output-document=F https://x
wget --output-file=F https://x
wget --append-output F https://x
wget --save-cookies F https://x
wget --warc-file=F https://x
wget --rejected-log=F https://x
wget -P .. https://x
wget --directory-prefix=.. https://x
wget -r -nH https://x
wget -mk https://x
wget -i F
wget -N https://x/src/a.py
wget -c https://x/src/a.py
wget https://x/.mcp.json
wget https://x/AGENTS.md?y
gpg -o F -d x
gpg --output F -d x
gpg --export-options x --output=F
openssl enc -in a -out F
openssl genrsa -out ../k
openssl rand -out F 10
strace -o F ls
strace --output=F ls
ltrace -o F ls
script ../F -c ls
ffmpeg -i a ../b.mp3
pandoc a.md -o F
pandoc a.md --output=F
dot -Tpng -O a
dot -Tpng -oF a
pdftotext a ../b
convert a.png /tmp/b.png
terraform plan -out=F
terraform plan -out F
gh release download -O F
mypy --html-report=../x src
ruff check --output-file F
some-tool --log-file=F
some-tool --dump F
some-tool --save-as F
some-tool -o F
some-tool --out F
some-tool a ../b
some-tool a /etc/x
some-tool a ~/.bashrc
some-tool of=../x
some-tool --where=../x
some-tool -x../y
some-tool a .git/hooks/pre-commit
some-tool a src/../AGENTS.md
some-tool a out/x
some-tool file:///etc/x
some-tool a $x
some-tool *.py
some-tool ../*.py
""".strip().splitlines()
ORDINARY = r"""
git status -sb
git log --oneline -n 5 ../x
git diff --stat HEAD~1 -- src/a.py
git add -A
git commit -m 'write --output=/etc/x'
git checkout -b fix/login
git worktree add src/x
git worktree list
git clone --depth 1 https://github.com/a/b.git
git push -u origin main
git push origin src
git remote add origin https://x/y.git
git remote -v
git apply --check fix.patch
git archive HEAD
git -C src log
git -c user.name=x commit -am a
git mv a src/b
git rev-parse --show-toplevel
uniq
uniq -c a
uniq -f 1 -w10 a
uniq --skip-fields=2 a
xxd a
xxd -l 10 -g1 a
ptx a
curl https://x
curl -fsSL https://x/y
curl -sSL -H 'A: b' -X POST -d @src/a.json https://x
curl -s -w '%{http_code}' https://x
curl --max-time 5 --retry=3 https://x https://y
wget https://x/y.tar.gz
wget -q --tries=3 https://x/y.tar.gz
wget --spider https://x
gpg --verify a.sig a
openssl version
openssl x509 -in a.pem -noout -text
strace ls
terraform plan
terraform show --json
gh pr list --limit 5
gh pr view 12 --json title
mypy src --strict
ruff check src tests
some-tool build src/a.py
git merge -Xours main
git merge --squash -m "fixes this" main
git rebase --skip
git cherry-pick -s HEAD
git config --get core.fsmonitor
git config core.fsmonitor
git config -l
git config user.name x
find -- . -name x
awk -- '{print $1}' f
less -NR f
curl -w '%{http_code}' https://x
curl -d @body.json https://x
wget https://x/a%20b.txt
tree -L 2 -a
yq .a f
some-tool --output-format=json src
some-tool --log-level debug
some-tool --no-output a
some-tool a $PWD/src
some-tool src/*.py
some-tool https://x/etc/y
grep -o x a
ls -o ..
cat ../a /etc/hosts
cp a ../b
tar xf a.tgz -C ../x
npm run build -- --output ../x
pytest --junitxml=../x.xml -o a=b
./run.sh -o ../x
""".strip().splitlines()


@pytest.fixture
def cwd(tmp_path, monkeypatch):
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "out").symlink_to("..")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return work


def decided(cwd, command, mode, *allow):
    return decide(Policy(str(cwd), mode, rules_of("allow", allow, "test")), "bash", {"command": command})


def rules_for(command):
    return [f"Bash({command.split()[0]} *)", "Bash(ls *)"]


@pytest.mark.parametrize("command", WRITING)
def test_an_output_that_the_rule_does_not_name_is_asked_about(cwd, command):
    assert decided(cwd, command, "dontAsk", *rules_for(command)).behavior == "deny"
    asked = decided(cwd, command, "default", *rules_for(command))
    assert asked.behavior == "ask" and asked.reason != "no rule allows it"
    assert decided(cwd, command, "default", *asked.always).behavior == "allow"


@pytest.mark.parametrize("command", ORDINARY)
def test_ordinary_forms_are_covered(cwd, command):
    found = decided(cwd, command, "dontAsk", *rules_for(command))
    assert found.behavior == "allow", found.reason


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git worktree add ../x", "Bash(git worktree *)"),
        ("git bundle create F main", "Bash(git bundle create:*)"),
        ("uniq a b", "Bash(uniq a *)"),
        ("some-tool --log ../x -v", "Bash(some-tool --log ../x *)"),
        ("curl -o x https://y", "Bash(curl -o x *)"),
    ],
)
def test_a_rule_may_name_the_output(cwd, command, rule):
    wanted = "deny" if rule == "Bash(uniq a *)" else "allow"
    assert decided(cwd, command, "dontAsk", rule).behavior == wanted


def test_there_are_enough_lines():
    assert len(WRITING) > 100
