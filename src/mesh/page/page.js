// Shows what the judges say, and what the agents report. nodes.js, zones.js, past.js, link.js and
// map.js follow it in the same script.
//
// Names come from the network. They are written to the document only as text
// nodes, never as markup.
'use strict';

// Milliseconds between two requests; at least ten times the duration of the last one.
const PERIOD = 15e3;
// Milliseconds to wait for an answer.
const ANSWER_TIME = 60e3;
// Peer lists older than this are mentioned, in seconds (src/limits.rs).
const LIST_AGE = 240;
// Beyond this many nodes, the agents' reports are collected on demand only.
const COLLECTED_MAX = 24;
const MEASURES = [['loss', 'Loss'], ['rtt_p50_seconds', 'RTT p50'], ['rtt_p99_seconds', 'RTT p99']];
const KINDS = {
  mesh: 'Mesh', partition: 'Partition', paths: 'Parallel path', node: 'Node', zone: 'Zone', zone_pair: 'Zone pair',
  domain: 'Domain', link: 'Link', flow: 'Flow', mtu: 'Large packets', check: 'Check',
  agent_starved: 'Starved agent', agent_unreachable: 'Unreachable agent', agent_suspect: 'Suspect judge',
};
const WAYS = { in: 'inbound', out: 'outbound', both: 'either direction' };

const mesh = {
  // Maps a source's name to { source, checks, layers }; layers to { 'pod icmp': Map of a peer's
  // name to its object }.
  rows: new Map(),
  // Maps a name to { name, zone }.
  nodes: new Map(),
  // Maps a name to 'starved' or 'leaving', as the judges list them.
  standings: new Map(),
  // Maps a name to the reason why its report did not arrive.
  missing: new Map(),
  layers: new Set(), notCollected: 0, at: null,
  // The nodes that are collected and shown, if they are those of a pair of zones.
  part: { pair: '' },
  // The answers to api/v1/verdicts, api/v1/nodes and api/v1/history, or none yet.
  said: null, all: { rows: [], worst: [], zone_pairs: [] }, past: null, pastSince: 0,
};
// What the address of the page holds, so that another reader sees the same.
const shown = { at: '', hours: '', verdict: '', search: '', sort: '-Loss in', agents: 'Node', measure: 'loss', layer: '', from: '', to: '', matrix: '', pair: '', internals: '' };
const usual = { ...shown };
const turns = { timer: 0, due: 0, running: false, paused: false, failures: 0 };

const $ = (id) => document.getElementById(id);
const put = (id, ...children) => $(id).replaceChildren(...children);
function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

for (const [key, value] of new URLSearchParams(location.search)) if (key in shown) shown[key] = value;
if (!MEASURES.some(([name]) => name === shown.measure)) shown.measure = 'loss';
function keep(changes) {
  Object.assign(shown, changes);
  const query = new URLSearchParams(Object.entries(shown).filter(([key, value]) => value !== usual[key]));
  history.replaceState(null, '', location.pathname + (query.size ? '?' + query : ''));
}

// ---- figures ----

const collator = new Intl.Collator('en', { numeric: true });
const inOrder = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(a?.textContent ?? a ?? '', b?.textContent ?? b ?? ''));
const number = (value) => (value == null ? '-' : value.toLocaleString('en'));
const digits = (value) => (value < 9.95 ? value.toFixed(1).replace('.0', '') : value.toFixed(0));
const percent = (part) => (part > 0 && part < 0.001 ? '< 0.1 %' : digits(part * 100) + ' %');
const bytes = (value) => (value == null ? '-' : (value / 1048576).toFixed(2) + ' MiB');
const count = (of, noun) => `${number(of)} ${noun}${of === 1 ? '' : 's'}`;
const seconds = (value) => {
  if (value == null) return '-';
  return value < 1e-3 ? digits(value * 1e6) + ' µs' : value < 1 ? digits(value * 1e3) + ' ms' : digits(value) + ' s';
};
const now = () => Date.now() / 1e3;
const lasting = (value) => {
  const minutes = Math.round(value / 60), hours = Math.round(value / 3600);
  return value < 90 ? Math.max(0, Math.round(value)) + ' s' : minutes < 90 ? minutes + ' min' : hours < 72 ? hours + ' h' : Math.round(hours / 24) + ' days';
};
const ago = (unix) => lasting(now() - unix) + ' ago';
const utc = (unix) => {
  const date = new Date(unix * 1e3);
  return isNaN(date) ? 'unknown' : date.toISOString().slice(0, 19) + 'Z';
};
// Text that shows the time in UTC when it is pointed at.
const timed = (text, ...times) => make('time', { title: times.map(utc).join(' to ') }, text);
const NETWORKS = ['pod', 'node'];
const PROTOCOL = /^(icmp|udp|tcp)(v6)?$/;
const layerName = (layer) => {
  const [network, protocol = ''] = layer.split(' ');
  return `${network} network${network === 'both' ? 's' : ''}, ` + protocol.replace(PROTOCOL, (_, name, six) => `${name.toUpperCase()}, IPv${six ? 6 : 4}`);
};

// Share of the probes that were answered or lost: those in flight are not lost yet.
const loss = ({ lost, received }) => lost / (lost + received);
// The state comes from one source, the standing from the judges.
const leaves = ({ node, state }) => (state !== 'ready' && state !== 'unready') || mesh.standings.get(node) === 'leaving';
const measured = (peer) => peer.recent.lost + peer.recent.received > 0 && !leaves(peer);
// One network, or both side by side.
const layerOf = ({ network, protocol }) => `${network} ${protocol}`;
const layersOf = (layer) => (layer.startsWith('both') ? NETWORKS.map((name) => layer.replace('both', name)) : [layer]);
const layersShown = () => layersOf(shown.layer);
const findAll = (source, peer) => layersShown().map((layer) => mesh.rows.get(source)?.layers[layer]?.get(peer));
const find = (source, peer) => findAll(source, peer).find(Boolean);

const waiting = ({ recent }) => recent.run_delay_seconds / recent.seconds;

// ---- collecting ----

function node(name, zone) {
  let known = mesh.nodes.get(name);
  if (!known) mesh.nodes.set(name, (known = { name, zone: 'unknown' }));
  if (zone && known.zone === 'unknown') known.zone = zone;
  return known;
}

function addRow({ source, checks = [], peers }) {
  const layers = {};
  // An agent of another version may lack a part.
  source.recent ??= {};
  for (const peer of peers) {
    peer.recent ??= {};
    // This page cannot show other networks and protocols.
    if (!NETWORKS.includes(peer.network) || !PROTOCOL.test(peer.protocol)) continue;
    const layer = layerOf(peer);
    node(peer.node, peer.zone);
    mesh.layers.add(layer);
    (layers[layer] ??= new Map()).set(peer.node, peer);
  }
  node(source.node, source.zone);
  mesh.rows.set(source.node, { source, checks: checks.filter(({ tried }) => tried), layers });
  shown.layer ||= usual.layer = layersInOrder()[0] ?? '';
}

// Each report is on a line of its own, and the last line has all the rest. An answer built in
// another way has lost a part: it must not look like a mesh without loss.
function readMesh(text) {
  const [first, ...lines] = text.split('\n'), rows = [], unread = [];
  const at = lines.findIndex((line) => line.startsWith('],')), reports = count(Math.max(0, at < 0 ? lines.length - 1 : at), 'report');
  if (first !== '{"rows":[' || at < 0 || lines.length !== at + 2 || lines[at + 1]) throw new Error(`the answer broke off after ${reports}`);
  const end = JSON.parse('{"rows":[' + lines[at]);
  if (!Array.isArray(end.missing)) throw new Error(`the answer cannot be read after ${reports}`);
  for (const line of lines.slice(0, at)) {
    try {
      const row = JSON.parse(line.replace(/^,/, ''));
      addRow(row);
      rows.push(row);
    } catch {
      // One agent with an unreadable report does not hide the others.
      unread.push({ node: line.match(/"node":"([^"\\]*)"/)?.[1] ?? 'an agent', error: 'its report cannot be read' });
    }
  }
  return { rows, missing: [...end.missing, ...unread] };
}

// A complete collection replaces all data: sources that are not in it are no longer shown.
function settle({ rows, missing, left }) {
  for (const known of [mesh.rows, mesh.nodes, mesh.missing, mesh.layers]) known.clear();
  rows.forEach(addRow);
  for (const { node: name, error } of missing) {
    node(name);
    mesh.missing.set(name, error);
  }
  Object.assign(mesh, { notCollected: left, at: now() });
}

async function ask(path) {
  const answer = await fetch('api/v1/' + path, { cache: 'no-store', signal: AbortSignal.timeout(ANSWER_TIME) });
  if (answer.ok) return answer;
  const why = (await answer.text()).slice(0, 200).trim(), after = answer.headers.get('retry-after');
  throw Object.assign(new Error(`the agent answers ${answer.status}: ${why}`), { after });
}

// The verdicts are those of the judges. They come first, because they are small.
async function askJudges() {
  const said = await (await ask('verdicts')).json();
  const { verdicts, judges, missing, starved, leaving, headline: text, state, nodes, not_gathered: left } = said;
  if (![verdicts, judges, missing, starved, leaving].every(Array.isArray) || !text || !state || !(nodes >= 0) || !(left >= 0)) throw new Error('the verdicts cannot be read');
  mesh.said = { ...said, at: now() - said.age_seconds };
  mesh.standings = new Map(Object.entries({ starved, leaving }).flatMap(([is, names]) => names.map((name) => [name, is])));
  showVerdicts();
}
const isLarge = () => mesh.said?.nodes > COLLECTED_MAX;

async function turn(wanted) {
  if (turns.running) return;
  turns.running = $('again').disabled = true;
  const began = performance.now();
  let wait, failed = 'The request for verdicts';
  try {
    await askJudges();
    await askPast();
    failed = 'Collection';
    if (isLarge()) await askNodes();
    if (!isLarge() || wanted === true || (shown.matrix === '1' || pairShown()) && !isCollected()) {
      put('age', 'Collecting the reports');
      await collect();
    }
    wait = Math.max(PERIOD, 10 * (performance.now() - began));
    turns.failures = 0;
    $('trouble').hidden = true;
    showMesh();
  } catch (error) {
    // Waits as long as the agent asks, and twice as long after each further failure,
    // up to two minutes.
    wait = Math.min(120e3, (Number(error.after) || 5) * 1e3 * 2 ** turns.failures++);
    showTrouble(error, wait / 1e3, failed);
  }
  turns.running = $('again').disabled = false;
  plan(wait);
}

function plan(wait) {
  clearTimeout(turns.timer);
  turns.due = Date.now() + wait;
  if (!turns.paused && document.visibilityState === 'visible') turns.timer = setTimeout(turn, wait);
}

function resume() {
  clearTimeout(turns.timer);
  if (!turns.running) plan(Math.max(0, turns.due - Date.now()));
}

// ---- words ----

function showAge() {
  const of = [];
  if (mesh.said) of.push('Judged ', timed(ago(mesh.said.at), mesh.said.at));
  if (mesh.at) of.push(`; ${count(mesh.rows.size, 'report')} collected `, timed(ago(mesh.at), mesh.at));
  if (of.length) put('age', ...of);
}

function showMesh() {
  $('internals').hidden = !mesh.at;
  showTables();
  showAge();
  controls();
  showVerdicts();
  redraw();
  if (shown.from && !$('link').open || mesh.at && $('link').open) openLink({ source: shown.from, peer: shown.to });
}

function showTrouble({ message }, wait, what) {
  const picture = mesh.at ? ` The map is of ${ago(mesh.at)} or newer.` : '';
  const next = turns.paused ? '' : ` The next attempt is in ${Math.round(wait)} s.`;
  put('trouble', `${what} failed: ${message}.${picture}${next}`);
  $('trouble').hidden = false;
  if (!mesh.said) put('headline', 'No verdict: the request failed');
  showAge();
  controls();
  redraw();
}

function showVerdicts() {
  const then = momentShown(), { said } = mesh;
  document.body.className = then == null ? '' : 'then';
  $('then').hidden = then == null;
  if (then != null) return showPast(then);
  const { verdicts, missing, not_gathered: left, state, judges, nodes } = said, unknown = [];
  if (missing.length) unknown.push(`${count(missing.length, 'agent')} did not answer`);
  if (left) unknown.push(`${count(left, 'agent')} not collected`);
  // The headline is about the reports that were judged. The missing ones are listed apart.
  const line = $('headline'), isWhole = state !== 'well' || !unknown.length;
  line.className = state === 'unknown' ? '' : state !== 'well' ? 'bad' : isWhole && /^all well/.test(said.headline) ? 'well' : '';
  line.textContent = isWhole ? said.headline : `Nothing stands out, but ${unknown.join(' and ')}`;
  document.title = `${verdicts.length ? `(${verdicts.length}) ` : ''}Mesh - KubeCanary`;
  const by = judges.map(({ node: name }) => name).join(', ');
  const facts = [by ? `${count(nodes, 'node')} judged by ${by}` : 'Nobody judges', ...(isWhole ? unknown : [])];
  if (mesh.at) facts.push(...ofReports());
  put('summary', facts.join('; '));
  list(verdicts);
}

const list = (verdicts) => put('verdicts', ...verdicts.map(verdictItem));

// Facts of the reports, beside the verdicts.
function ofReports() {
  const sources = [...mesh.rows.values()].map(({ source }) => source);
  const peers = [...mesh.rows.values()].flatMap(({ layers }) => Object.values(layers)).flatMap((layer) => [...layer.values()]);
  const links = peers.filter(measured), lossy = links.filter(({ recent }) => recent.lost).length, silent = peers.length - links.length;
  const old = sources.filter(hasOldList).length;
  const lacking = sources.filter(({ watchers_missing: missing }) => missing).length;
  return [
    `${count(links.length, 'link')} measured in the last minute, ${number(lossy)} of them with loss`,
    ...(silent ? [`${count(silent, 'known link')} not measured`] : []),
    ...(lacking ? [`${count(lacking, 'node')} with too few watchers`] : []),
    ...(old ? [`${count(old, 'agent')} with an old list of peers`] : []),
  ];
}
// Old lists lack new nodes and still contain removed ones.
const hasOldList = ({ peer_list_age_seconds: age }) => age === null || age > LIST_AGE;
const listAge = (age) => (age === null ? 'never had one' : lasting(age));

const sentence = ({ subject, evidence }) =>
  evidence.startsWith(subject) ? evidence : `${arrow(subject)}: ${evidence}`;
// What fails for most nodes has its own name alone.
const arrow = (subject) => subject.replace(/^\*->/, '').replace('->', ' → ');

// A verdict: what it says, its runbook, and the next command. Its button shows on the map what it
// is about, and hides it again.
function verdictItem(verdict) {
  const { id, kind, direction, network, protocol, confidence, severity, since_unix_seconds: begun, ended_unix_seconds: ended } = verdict;
  // An agent that is late or silent has no direction, and a check neither that nor a network.
  const facts = kind.startsWith('agent') || kind === 'check' ? [] : [WAYS[direction] ?? direction, `${network} network`];
  // Without a protocol, all share the cause.
  if (facts.length && protocol) facts.push(`by ${protocol.toUpperCase()}`);
  if (confidence === 'likely') facts.push('likely');
  if (verdict.unconfirmed) facts.push('unconfirmed');
  const text = make('span', { className: 'dim' }, ` ${facts.join(', ')}`), to = ended ?? now();
  if (begun != null) text.append(facts.length ? ', ' : '', timed(`for ${lasting(to - begun)}`, begun, ...(ended ? [ended] : [])));
  if (ended) text.append(', ended ', timed(ago(ended), ended));
  const button = make('button', {}, make('b', {}, KINDS[kind] ?? kind), sentence(verdict), text);
  button.ariaPressed = shown.verdict === id;
  button.onclick = () => {
    keep({ verdict: shown.verdict === id ? '' : id });
    for (const other of $('verdicts').querySelectorAll('button')) {
      other.ariaPressed = other === button && shown.verdict !== '';
    }
    const about = `${network} ${protocol ?? ''}`, layer = layersInOrder().find((known) => known.startsWith(about));
    if (layer && !layersShown().some((of) => of.startsWith(about))) keep({ layer });
    controls();
    redraw();
    if (shown.verdict) reveal(verdict);
  };
  return make('li', { className: severity ?? '' }, button, nextSteps(verdict));
}

// ---- what to do ----

const DOCS = 'https://github.com/kube-canary/kube-canary/blob/main/docs/';
const RUNBOOKS = {
  node: 'a-node', link: 'a-link', zone: 'zones', zone_pair: 'zones', domain: 'zones', agent_suspect: 'kubecanaryjudgesuspect',
  agent_starved: 'kubecanaryagentfault', agent_unreachable: 'kubecanaryagentfault', check: 'kubecanarycheck',
};

// The runbook, and a command for a shell. Names come from the network, so a name that a shell could
// read as more than a word gives no command.
function nextSteps({ kind, subject, protocol, check }) {
  const href = DOCS + (kind === 'flow' || kind === 'mtu' ? 'verdicts.md#flows-and-large-packets'
    : 'alerts.md#' + (protocol && protocol !== 'icmp' ? 'udp-or-tcp-alone' : RUNBOOKS[kind] ?? 'kubecanaryfault'));
  const names = subject.split('->'), [a, b] = names, kubectl = 'kubectl -n kube-canary ', pods = kubectl + 'get pod --field-selector spec.nodeName=';
  const run = (pod, command) => `${kubectl}exec ${pod} -- /kube-canary ${command}`, any = 'daemonset/kube-canary';
  const pod = (name) => `$(${pods}${name} -o name)`, address = (name) => `$(${pods}${name} -o jsonpath='{.items[0].status.podIP}')`;
  const flags = { flow: '--udp --flows 16 --trace ', mtu: '--payload-bytes 1400 ' }[kind] ?? '';
  const command = {
    node: () => `kubectl describe node ${a}`, agent_starved: () => `kubectl describe node ${a}`, agent_unreachable: () => `${pods}${a} -o wide`,
    agent_suspect: () => run(any, 'doctor --history'), check: () => (check?.kind === 'dns' ? 'kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide'
      : b === 'api-server' ? 'kubectl get --raw /readyz' : run(any, 'doctor')),
  }[kind] ?? (b && ['link', 'flow', 'mtu'].includes(kind) ? () => run(pod(a), `ping ${flags}${address(b)}`) : () => run(any, 'doctor'));
  const isPlain = subject === '*' || kind === 'check' || names.every((name) => /^\w[\w.-]*$/.test(name));
  return make('p', { className: 'next' }, make('a', { href, target: '_blank', rel: 'noreferrer' }, 'Runbook'),
    ...(isPlain ? [' Next: ', make('code', {}, command())] : []));
}

// The pod network comes first, ICMP comes first, and IPv4 comes first.
const layersInOrder = () => [...mesh.layers].sort((a, b) => (a.replace('pod', '') < b.replace('pod', '') ? -1 : 1));

// A switch is shown only if there is more than one choice.
function controls() {
  if (mesh.at && !layersShown().every((of) => mesh.layers.has(of))) shown.layer = usual.layer = layersInOrder()[0] ?? '';
  const layers = layersInOrder(), both = layers.map((layer) => layer.replace('node', 'both'));
  const choices = [...layers, ...both.filter((layer) => layersOf(layer)[1] && layersOf(layer).every((of) => mesh.layers.has(of)))];
  const switches = [
    ['Colour', shown.measure, MEASURES, (measure) => keep({ measure })],
    ['Probes', shown.layer, choices.map((layer) => [layer, layerName(layer)]), (layer) => keep({ layer })],
    ['Size', null, [[-1, '-', 'Smaller cells'], [0, 'Fit', 'Fit'], [1, '+', 'Larger cells']], zoom],
  ].filter(([, , options]) => options.length > 1);
  const state = JSON.stringify(switches), box = $('controls');
  if (box.dataset.state === state) return;
  const focus = [...box.querySelectorAll('button')].findIndex((button) => button === document.activeElement);
  box.dataset.state = state;
  box.replaceChildren(...switches.map(([title, now, options, choose]) => make('fieldset', {}, make('legend', {}, title),
    ...options.map(([value, text, label]) => {
      const onclick = () => {
        choose(value);
        controls();
        redraw();
      };
      return make('button', { onclick, ...(label ? { ariaLabel: label } : { ariaPressed: value === now }) }, text);
    }))));
  box.querySelectorAll('button')[focus]?.focus();
}

$('pause').onclick = () => {
  turns.paused = !turns.paused;
  $('pause').ariaPressed = turns.paused;
  resume();
};
$('again').onclick = () => {
  if (isLarge() && !pairShown()) keep({ matrix: '1' });
  turn(true);
};
$('draw').onclick = () => {
  keep({ matrix: 'zones' });
  showTables();
};
document.onvisibilitychange = resume;
