// Tables: the checks, of the reports; the worst links and all nodes, of the judge's last round; and
// the agents' own state, of their reports.

// Rows of a table that are drawn. A search finds the others.
const ROWS_MAX = 200;

// Fills a table, whose heads sort it. A column has a title, what it shows, and for figures its sort
// key. Rows that follow `rows` are not sorted. Returns how many rows are not shown.
function table(box, key, columns, rows, last = []) {
  const by = Math.max(0, columns.findIndex(([title]) => title === shown[key]?.replace('-', ''))), down = shown[key]?.startsWith('-');
  const [, shows, sorts] = columns[by], of = sorts ?? shows;
  if (key) rows = [...rows].sort((a, b) => (down ? -1 : 1) * inOrder(of(a), of(b)) || inOrder(a.node, b.node));
  const heads = columns.map(([title, , numeric], at) => {
    const onclick = () => {
      keep({ [key]: (at === by ? !down : numeric || title === 'State') ? '-' + title : title });
      showTables();
      box.querySelectorAll('th button')[at].focus();
    };
    return make('th', { scope: 'col', className: numeric ? 'number' : '', ariaSort: key && at === by ? down ? 'descending' : 'ascending' : null },
      key ? make('button', { onclick }, title) : title);
  });
  const cells = (row) => columns.map(([title, shows, numeric]) =>
    make('td', { className: title === 'State' ? 'flag' : numeric ? 'number' : '' }, shows(row)));
  box.replaceChildren(make('table', {}, make('thead', {}, make('tr', {}, ...heads)),
    make('tbody', {}, ...last, ...rows.slice(0, ROWS_MAX).map((row) => make('tr', {}, ...cells(row))))));
  return Math.max(0, rows.length - ROWS_MAX);
}

// ---- all nodes ----

// No judge, or one that fails, is no reason to show no verdicts.
async function askNodes() {
  try {
    const all = { zone_pairs: [], ...await (await ask('nodes')).json() };
    if (![all.rows, all.worst, all.zone_pairs].every(Array.isArray)) throw new Error('the answer cannot be read');
    mesh.all = { ...all, why: '' };
  } catch ({ message }) {
    mesh.all.why = message;
  }
  showTables();
}

const share = (of) => (of ? of.lost / of.probes : -1);
// The protocol is named if it is not ICMP, and the network if it is not that of the pods.
const lost = (of) => {
  if (!of) return '-';
  const { lost, probes, network, protocol } = of, how = (lost && protocol !== 'icmp' ? ' ' + protocol.toUpperCase() : '') + (network === 'node' ? ' nodes' : '');
  return make('span', { className: share(of) >= 0.02 ? 'flag' : '', title: `${lost} of ${probes} probes, ${layerName(layerOf(of))}` }, percent(share(of)) + how);
};
const REPORTS = { broken: 'report broke off', missing: 'no report', listed: 'not asked', other_version: 'another version' };
const stateOf = ({ standing, report }) => [standing === 'sound' ? '' : standing, REPORTS[report] ?? ''].filter(Boolean).join(', ');

const NODES = [
  ['Node', (row) => make('button', { onclick: () => openLink({ source: row.node, peer: '*' }) }, row.node)],
  ['Loss in', (row) => lost(row.in), (row) => share(row.in)],
  ['Loss out', (row) => lost(row.out), (row) => share(row.out)],
  ['RTT p50', (row) => seconds(row.rtt_p50_seconds), (row) => row.rtt_p50_seconds ?? -1],
  ['p99 out', (row) => seconds(row.rtt_p99_seconds), (row) => row.rtt_p99_seconds ?? -1],
  ['Watchers', (row) => number(row.watchers), (row) => row.watchers],
  ['State', stateOf],
  ['Zone', (row) => row.zone],
];

const WORST = [
  ['Link', (row) => make('button', { onclick: () => {
    shown.layer = layerOf(row);
    openLink(row);
  } }, `${row.source} → ${row.peer}`)],
  ['Loss', lost, true],
  ['Probes', (row) => `${row.lost} of ${row.probes}`, true],
  ['RTT p50', (row) => seconds(row.rtt_p50_seconds), true],
];

// ---- checks ----

const CHECKS = [
  ['Check', ({ name, kind }) => `${name} (${kind})`],
  ['Failing', ({ failing, nodes }) => `${failing} of ${nodes}`, true],
  ...['Tried', 'Failed', 'Slow'].map((title) => [title, (of) => number(of[title.toLowerCase()]), true]),
  ['Median', (of) => seconds(of.time_p50_seconds), true],
  ['Reason', ({ reason }) => reason?.replaceAll('_', ' ') ?? ''],
];

// Adds up the checks of nodes; median and reason are those of the worst one. What fails comes
// first, then what is slow. A name that few nodes have is in no list that they share.
function summed(lists) {
  const all = new Map(), rank = ({ tried, failed = 0, slow = 0 }) => (failed + slow / 1e3) / tried, by = (a, b) => rank(b) - rank(a);
  for (const check of lists.flat()) all.get(check.name)?.push(check) ?? all.set(check.name, [check]);
  return [...all.values()].filter(({ length }) => length * 2 >= lists.length).map((of) => {
    const sum = (field) => of.reduce((all, one) => all + (one[field] ?? 0), 0);
    return { ...of.sort(by)[0], nodes: of.length, failing: of.filter(({ failed }) => failed).length, tried: sum('tried'), failed: sum('failed'), slow: sum('slow') };
  }).sort(by);
}

function showTables() {
  const checks = summed([...mesh.rows.values()].map((row) => row.checks));
  table($('checks'), '', CHECKS, checks);
  $('checks').hidden = !checks[0];
  $('all').hidden = !isLarge();
  if (isLarge()) {
    const { rows, worst, why, not_listed: notListed } = mesh.all, text = shown.search.toLowerCase();
    put('all-note', why ? `No new figures of all nodes: ${why}. Collect now asks the agents instead.` : `Figures of the last minute, by one judge.${worst.length ? '' : ' No link has lost a probe.'}`);
    table($('worst'), '', WORST, worst);
    $('worst').parentNode.hidden = !worst.length;
    $('nodes').parentNode.hidden = !rows.length;
    const found = rows.filter(({ node: name, zone }) => `${name} ${zone}`.toLowerCase().includes(text));
    const more = table($('nodes'), 'sort', NODES, found);
    const notes = [text ? `${number(found.length)} of ${count(rows.length, 'node')} match` : count(rows.length, 'node')];
    if (more) notes.push(`${ROWS_MAX} are shown`);
    if (notListed) notes.push(`the judge has no room for ${number(notListed)} more`);
    put('nodes-note', notes.join('; '));
    showZones();
  }
  $('matrix').hidden = !isCollected();
  agents();
}

$('search').value = shown.search;
$('search').oninput = () => {
  keep({ search: $('search').value });
  showTables();
};
onkeydown = (event) => {
  if (event.key !== '/' || event.target.matches('input') || $('all').hidden) return;
  event.preventDefault();
  $('search').focus();
};

// ---- the agents' table ----

const AGENTS = [
  ['Node', (s) => make('button', { onclick: () => openLink({ source: s.node, peer: '*' }) }, s.node)],
  ['State', (s) => [mesh.standings.get(s.node), hasOldList(s) && 'old list'].filter(Boolean).join(', ')],
  ['Zone', (s) => s.zone],
  ['Probed by', (s) => number(s.watchers) + (s.watchers_missing ? ` (${s.watchers_missing} too few)` : ''), (s) => s.watchers],
  ['List age', (s) => (s.peer_list_age_seconds === undefined ? '-' : listAge(s.peer_list_age_seconds)),
    (s) => s.peer_list_age_seconds ?? Infinity],
  ['Send lag p99', (s) => seconds(s.recent.send_lag_p99_seconds), (s) => s.recent.send_lag_p99_seconds],
  ['Waits for CPU', (s) => (waiting(s) >= 0 ? percent(waiting(s)) : '-'), waiting],
  ['Version', (s) => s.version ?? '-'],
  ['Allocator', (s) => s.allocator ?? '-'],
  ['RSS', (s) => bytes(s.rss_bytes), (s) => s.rss_bytes],
];

function agents() {
  const sources = [...mesh.rows.values()].map(({ source }) => source);
  const note = (text) => make('td', { colSpan: AGENTS.length - 1, className: 'flag' }, text);
  const silent = [...mesh.missing].map(([name, error]) =>
    make('tr', {}, make('td', {}, name), note(`did not answer: ${error}`)));
  if (mesh.notCollected) silent.push(make('tr', {}, note(`${count(mesh.notCollected, 'further agent')} not collected`)));
  const more = table($('agents'), 'agents', AGENTS, sources, silent);
  put('agents-note', more ? `${number(more)} more are not shown.` : '');
}

$('internals').open = shown.internals;
$('internals').ontoggle = () => keep({ internals: $('internals').open ? '1' : '' });
