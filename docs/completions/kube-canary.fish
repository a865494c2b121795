# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_kube_canary_global_optspecs
    string join \n h/help V/version
end

function __fish_kube_canary_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_kube_canary_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_kube_canary_using_subcommand
    set -l cmd (__fish_kube_canary_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c kube-canary -n "__fish_kube_canary_needs_command" -s h -l help -d 'Print this text'
complete -c kube-canary -n "__fish_kube_canary_needs_command" -s V -l version -d 'Print the version in one short line'
complete -c kube-canary -n "__fish_kube_canary_needs_command" -f -a "run" -d 'Probes the peers and serves /metrics. It is also what runs without a command.'
complete -c kube-canary -n "__fish_kube_canary_needs_command" -f -a "ping" -d 'Probes targets with the agent\'s prober, and prints a line per probe and a summary.'
complete -c kube-canary -n "__fish_kube_canary_needs_command" -f -a "demo" -d 'Runs a mesh of real agents, one process each, on this machine\'s loopback addresses.'
complete -c kube-canary -n "__fish_kube_canary_needs_command" -f -a "fleet" -d 'What every agent costs and measures: a row per node.'
complete -c kube-canary -n "__fish_kube_canary_needs_command" -f -a "doctor" -d 'Which node, link, zone or domain is bad, as the agents see it.'
complete -c kube-canary -n "__fish_kube_canary_needs_command" -f -a "act" -d 'Makes Events, messages and node conditions of what the judges of the mesh agree on.'
complete -c kube-canary -n "__fish_kube_canary_needs_command" -f -a "footprint" -d 'Shows what the memory of a process is for, and how much memory programs use.'
complete -c kube-canary -n "__fish_kube_canary_needs_command" -f -a "version" -d 'Shows which build this is, and which allocator runs.'
complete -c kube-canary -n "__fish_kube_canary_needs_command" -f -a "completion" -d 'Prints a script with which a shell completes commands, flags and their values.'
complete -c kube-canary -n "__fish_kube_canary_needs_command" -f -a "help" -d 'Prints the flags of a command, or the list of commands.'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l node-name -d 'Name of this node, source_node of every series' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l zone -d 'Zone of this node, source_zone of every series' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l listen -d 'Address and port of the HTTP server; the default serves both families, or IPv4 if there is no IPv6' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l allow-host -d 'Further DNS name under which the page and /api may be requested; may be given again, or separated by commas' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l discovery -d 'Source of the peers: kubernetes, dns or static' -r -f -a "kubernetes\t''
dns\t''
static\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -s n -l namespace -d 'kubernetes: namespace of the Service' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l service -d 'kubernetes: headless Service whose EndpointSlices are watched' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l dns -d 'dns: headless Service whose A and AAAA records are the peers' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l peer -d 'static: peer; may be given again (in the environment: separated by commas)' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l peers-file -d 'static: file with one NAME=ADDR[@ZONE] per line, # comments; read again when it changes' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l domains-file -d 'File with the failure domains, such as racks: NODE-NAME-PATTERN DOMAIN per line, # comments; read again when it changes' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l check -d 'Check beside the default ones: dns:NAME[@SERVER], tcp:HOST:PORT, tls:HOST:PORT, http(s)://HOST/PATH, icmp:HOST or udp:HOST:PORT; none turns the default ones off; may be given again, or separated by spaces' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l checks-file -d 'File with one [NAME=]KIND:TARGET per line, # comments; read again when it changes; at most 32 checks in all' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l check-ca -d 'File with the authorities, in PEM, that may sign the certificates of tls: and https: targets' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l check-rate -d 'Largest number of attempts per second of all agents together at one target outside of the mesh, 1 to 1000' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l probes -d 'How peers are probed: any of icmp, udp and tcp, separated by commas; the same on every node' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l flows -d 'udp: number of source ports, 1 to 16, from which the probes of each pair are sent in turn' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l udp-port -d 'udp: port at which every agent answers probes; the same on every node' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l tcp-port -d 'tcp: port at which every agent accepts handshakes; the same on every node' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l interval -d 'Time between two probes of a peer, 10ms to 300s; the probes of all peers are spread over it' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l timeout -d 'Time after which a probe without an answer is lost; up to 63 intervals' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l payload-bytes -d 'Bytes after the ICMP header, 24 to 8952' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l rtt-buckets -d 'Bounds of the classic RTT histogram: at most 16 ascending durations, separated by commas' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l max-peers -d 'Largest number of other nodes to probe, up to 256, selected so that at least N/2 nodes probe each; 0 means all; the same on every node' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l network -d 'pod, or pod,node: peers are also probed at their nodes\' own addresses, which they report' -r -f -a "pod\t''
pod\,node\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l link-series -d 'Series of each link: one (three counters, and one histogram), full (all), counters, or none' -r -f -a "one\t''
full\t''
counters\t''
none\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l max-series -d 'Largest number of exported series, 200 to 10000000; links beyond it are left out' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l forget-after -d 'Time for which a peer that left the list keeps its slot and counters' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l http-workers -d 'HTTP threads, 1 to 64, independent of the number of CPUs' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l judge -d 'auto: the agent judges the mesh if it is one of the three that must; or never' -r -f -a "auto\t''
never\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l membership -d 'member of the mesh; or outside: the agent probes the peers of its list and makes checks, and never judges' -r -f -a "member\t''
outside\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l outside -d 'Address of an agent with --membership outside, whose UDP and TCP probes are answered as those of members are; may be given again, or separated by commas' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l node-addresses -d 'The node\'s own addresses, separated by commas; reported to the peers' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l pod-addresses -d 'This agent\'s own addresses, separated by commas; never probed' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l heap-profile -d 'Only in builds with jemalloc-profiling: heap profiles go to FILE at the end, and to FILE.1, FILE.2, ... at SIGUSR2' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l log-level -d 'Most detailed level that is logged: error, warn, info, debug or off' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
off\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -l log-format -d 'Form of the log: text, or json with one object per line' -r -f -a "text\t''
json\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -s h -l help -d 'Print this text'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand run" -s V -l version -d 'Print the version in one short line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -s c -l count -d 'Number of probes to each target, or of attempts; ping ends once the last is answered or lost' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -s i -l interval -d 'Time between two probes of a target, or attempts, 10ms to 300s; those of all targets are spread over it' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -s W -l timeout -d 'Time after which a probe without an answer is lost; up to 63 intervals' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -s s -l payload-bytes -d 'Bytes after the ICMP header, 24 to 8952' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -l udp-port -d 'With --udp: port of the targets\' reflectors' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -l flows -d 'With --udp: number of source ports that the probes to each target use in turn, 1 to 16' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -l tcp -d 'Open a connection with this port of each host, as the check tcp:HOST:PORT does' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -l check-ca -d 'File with the authorities, in PEM, that may sign the certificates of tls: and https: targets' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -l color -d 'When colours are used: always, never, or auto, which is on a terminal unless NO_COLOR is set or TERM is dumb' -r -f -a "auto\t''
always\t''
never\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -s 4 -l ipv4 -d 'Probe the IPv4 address of each name'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -s 6 -l ipv6 -d 'Probe the IPv6 address of each name'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -l udp -d 'Probe by UDP (STAMP, RFC 8762) instead of ICMP; agents answer the members of their mesh alone'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -l trace -d 'With --udp: trace the path of the first source port of each target, and of each that loses'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -s q -l quiet -d 'Print the summary only'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -l until-eof -d 'End also when standard input ends, as it does in a pod when the kubectl that called is gone'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -l json -d 'Print one JSON object per line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -s h -l help -d 'Print this text'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand ping" -s V -l version -d 'Print the version in one short line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand demo" -l nodes -d 'Number of agents to start, 2 to 50, on 127.0.0.2 and up' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand demo" -l interval -d 'Time between two probes of a peer' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand demo" -l port -d 'HTTP port of every agent' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand demo" -l seconds -d 'Stop after this many seconds' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand demo" -l fault -d 'Fault between the agents: node3:in:10% drops a tenth of what is sent to node3; also :out: and :both:, node1-node2:10%, and a delay such as 20ms instead; may be given again, or separated by commas' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand demo" -s h -l help -d 'Print this text'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand demo" -s V -l version -d 'Print the version in one short line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -l url -d 'HTTP server of an agent, HOST:PORT or http://HOST:PORT; may be given again (in the environment: separated by commas)' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -l service -d 'Headless Service whose addresses are asked if there is no --url' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -s n -l namespace -d 'Namespace of the Service' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -l port -d 'HTTP port of the agents at the Service\'s addresses' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -l sort -d 'Sort by node, rss, dirty, cores, threads, allocator, version, cpu, loss, worst or lag; numbers largest first' -r -f -a "node\t''
rss\t''
dirty\t''
cores\t''
threads\t''
allocator\t''
version\t''
cpu\t''
loss\t''
worst\t''
lag\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -l group-by -d 'Show a row per allocator and number of CPUs: medians, ranges, and which is smallest' -r -f -a "allocator\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -s o -l output -d 'wide: a table with all columns and whole names; json: the same as --json' -r -f -a "wide\t''
json\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -l interval -d 'Time between two updates with --watch, 1s to 300s' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -l color -d 'When colours are used: always, never, or auto, which is on a terminal unless NO_COLOR is set or TERM is dumb' -r -f -a "auto\t''
always\t''
never\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -s w -l watch -d 'Repeat until Ctrl-C'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -l until-eof -d 'End also when standard input ends, as it does in a pod when the kubectl that called is gone'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -l json -d 'Print one JSON array on one line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -s h -l help -d 'Print this text'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand fleet" -s V -l version -d 'Print the version in one short line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -l url -d 'HTTP server of an agent, HOST:PORT or http://HOST:PORT; may be given again (in the environment: separated by commas)' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -l service -d 'Headless Service whose addresses are asked if there is no --url' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -s n -l namespace -d 'Namespace of the Service' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -l port -d 'HTTP port of the agents at the Service\'s addresses' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -l rows -d 'Judge the reports in this file instead: answers of /api/v1/mesh/NODES, or one report of /api/v1/peers per line; - is standard input' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -l domains-file -d 'File with the failure domains, such as racks: NODE-NAME-PATTERN DOMAIN per line, # comments; read again when it changes' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -l interval -d 'Time between two updates with --watch, 1s to 300s' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -l color -d 'When colours are used: always, never, or auto, which is on a terminal unless NO_COLOR is set or TERM is dumb' -r -f -a "auto\t''
always\t''
never\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -l collect -d 'Collect the reports and judge them here, instead of asking what the judges of the mesh agree on'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -l history -d 'Print the verdicts of the last 24 hours with their times instead, as the judges of the mesh agree on them'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -s w -l watch -d 'Repeat until Ctrl-C, and print what has changed, with the time'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -l until-eof -d 'End also when standard input ends, as it does in a pod when the kubectl that called is gone'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -l json -d 'Print one JSON object on one line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -s h -l help -d 'Print this text'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand doctor" -s V -l version -d 'Print the version in one short line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l url -d 'HTTP server of an agent, HOST:PORT or http://HOST:PORT; may be given again (in the environment: separated by commas)' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l service -d 'Headless Service whose addresses are asked if there is no --url' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -s n -l namespace -d 'Namespace of the Service' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l port -d 'HTTP port of the agents at the Service\'s addresses' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l pod-name -d 'Name by which this process holds the Lease' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l listen -d 'Address and port at which /metrics and /healthz are served' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l hold -d 'Time for which a verdict must hold before its node gets the condition' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l clear -d 'Time without a verdict after which a node\'s condition is taken back' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l max-nodes -d 'Largest number of nodes whose condition is not False at once, or a share of all; at least 1' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l unknown-after -d 'Time for which judges must be silent before conditions that are True become Unknown' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l webhook-url-file -d 'File with the URL to which messages go as JSON' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l webhook-key-file -d 'File with the key by which these messages are signed (HMAC-SHA256)' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l slack-url-file -d 'File with the URL of an incoming webhook of Slack, or of a server like it' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l pagerduty-key-file -d 'File with the routing key of PagerDuty\'s Events API v2' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l pagerduty-url -d 'Where PagerDuty takes events' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l alertmanager-url -d 'Alertmanager to which alerts are posted, such as http://alertmanager:9093' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l alert-label -d 'Label that Prometheus adds to the same alerts, such as job, namespace or cluster; may be given again, or separated by commas' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l ca-file -d 'File with the authorities, in PEM, that may sign the certificates of receivers' -r -F
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l log-level -d 'Most detailed level that is logged: error, warn, info, debug or off' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
off\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l log-format -d 'Form of the log: text, or json with one object per line' -r -f -a "text\t''
json\t''"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l conditions -d 'Set the condition KubeCanaryNetworkProblem of nodes'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l dry-run -d 'Log and count the conditions that would be set, and set none'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -l remove -d 'Take back the conditions of all nodes, and end'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -s h -l help -d 'Print this text'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand act" -s V -l version -d 'Print the version in one short line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand footprint" -s p -l pid -d 'Show the memory of one process, by category' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand footprint" -l filter -d 'Show a row for each program with NAME in its name, and a total; \'\' means every program' -r -f
complete -c kube-canary -n "__fish_kube_canary_using_subcommand footprint" -l json -d 'Print one JSON object on one line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand footprint" -s h -l help -d 'Print this text'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand footprint" -s V -l version -d 'Print the version in one short line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand version" -l json -d 'Print one JSON object on one line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand version" -s h -l help -d 'Print this text'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand version" -s V -l version -d 'Print the version in one short line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand completion" -s h -l help -d 'Print this text'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand completion" -s V -l version -d 'Print the version in one short line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand help" -s h -l help -d 'Print this text'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand help" -s V -l version -d 'Print the version in one short line'
complete -c kube-canary -n "__fish_kube_canary_using_subcommand completion" -f -a "bash zsh fish"
complete -c kube-canary -n "__fish_kube_canary_using_subcommand help" -f -a "run ping demo fleet doctor act footprint version completion help"
