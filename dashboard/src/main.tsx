// The dashboard: puts its parts to work and shows the page of the address.

import { render } from "preact";
import { Announcer } from "./announce.tsx";
import { startClock } from "./clock.ts";
import { startGroups } from "./groups.ts";
import { Help, startKeys } from "./keys.tsx";
import { agentList, connection, startLive } from "./live.ts";
import { needsPerson } from "./model.ts";
import { AgentPage } from "./pages/agent.tsx";
import { LabPage } from "./pages/lab.tsx";
import { LifelinesPage } from "./pages/lifelines.tsx";
import { Overview } from "./pages/overview.tsx";
import { Header, LoggedOut, Notices, Question, StaleBanner } from "./parts/header.tsx";
import { route, startRouter } from "./router.ts";
import { startTheme } from "./theme.ts";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/overview.css";
import "./styles/agent.css";
import "./styles/lifelines.css";
import "./styles/lab.css";

function Page() {
  const here = route.value;
  if (connection.value.word === "logged-out") return <LoggedOut />;
  switch (here.page) {
    case "overview":
      return <Overview />;
    case "lifelines":
      return <LifelinesPage />;
    case "lab":
      return <LabPage agent={here.agent} />;
    case "agent":
      return <AgentPage key={here.name} here={here} />;
  }
}

function App() {
  const troubled = agentList.value.filter(needsPerson).length;
  const here = route.value;
  const title = here.page === "agent" ? `${here.name} · defib` : "defib";
  document.title = troubled > 0 ? `(${troubled}) ${title}` : title;
  return (
    <>
      <a class="skip" href="#main" data-native>
        Skip to the content
      </a>
      <Header />
      <StaleBanner />
      <Page />
      <Notices />
      <Question />
      <Help />
      <Announcer />
    </>
  );
}

startTheme();
startClock();
startRouter();
startKeys();
startLive();
startGroups();
render(<App />, document.getElementById("app")!);
