// What Grafana itself says a dashboard is: the types of @grafana/schema, put together for the panels that the dashboards use.
// TestGrafanasTypes writes each dashboard below this as a Whole, and the compiler says what it does not know.
import * as ui from '@grafana/schema';
import {
  AnnotationQuery, Dashboard, FieldColor, FieldColorModeId, FieldConfig, MatcherConfig, Panel, RowPanel, ThresholdsConfig,
  ValueMapping, VariableModel,
} from './node_modules/@grafana/schema/dist/types/raw/dashboard/x/types.gen';
import * as stat from './node_modules/@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/types.gen';
import * as statetimeline from './node_modules/@grafana/schema/dist/types/raw/composable/statetimeline/panelcfg/x/types.gen';
import * as table from './node_modules/@grafana/schema/dist/types/raw/composable/table/panelcfg/x/types.gen';
import * as timeseries from './node_modules/@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen';

// What a type names as a member of an enum a file writes as a word, and what has a default may be left out.
type File<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T
  : T extends Array<infer E> ? Array<File<E>>
  : T extends object ? {[K in keyof T]?: File<T[K]>} : T;

interface Link { title: string; url: string; targetBlank?: boolean }

type Property = {id: 'displayName' | 'unit' | 'noValue'; value: string} | {id: 'decimals'; value: number}
  | {id: 'color'; value: Pick<FieldColor, 'fixedColor'> & {mode: `${FieldColorModeId}`}}
  | {id: 'mappings'; value: Array<File<ValueMapping>>} | {id: 'thresholds'; value: File<ThresholdsConfig>}
  | {id: 'links'; value: Link[]} | {id: 'custom.cellOptions'; value: File<ui.TableCellOptions>};

// Queries are Prometheus', whose types are not in the package: dashboard.go knows their fields.
interface Of<Type extends string, Options, Custom> extends Omit<File<Panel>, 'type' | 'options' | 'fieldConfig' | 'targets' | 'links'> {
  type: Type;
  options: File<Options>;
  targets: unknown[];
  links?: Link[];
  fieldConfig: {
    defaults: Omit<File<FieldConfig>, 'custom'> & {custom?: File<Custom>};
    overrides: Array<{matcher: File<MatcherConfig>; properties: Property[]}>;
  };
}

type Known = File<RowPanel>
  | Of<'timeseries', timeseries.Options, timeseries.FieldConfig>
  | Of<'stat', stat.Options, never>
  | Of<'state-timeline', statetimeline.Options, statetimeline.FieldConfig>
  | Of<'table', table.Options, never>;

export interface Whole extends Omit<File<Dashboard>, 'panels' | 'templating' | 'annotations'> {
  panels: Known[];
  templating: {list: Array<File<VariableModel> & {definition?: string}>};
  annotations: {list: Array<File<AnnotationQuery> & {
    expr?: string; useValueForTime?: boolean; step?: string; titleFormat?: string; tagKeys?: string;
  }>};
}
