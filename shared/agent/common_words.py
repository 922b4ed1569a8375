"""Frequent words of English. One such word in a URL tells little about a private text. Pure."""

from __future__ import annotations

_WORDS = """
able about above access account across action active activity actual actually added address after
again against agency agent agree agreement allow almost alone along already also although always
among amount analysis annual another answer anyone anything application apply approach april area
areas around article asked assets august authority available average away back balance bank base
based basic because become been before began begin behind being believe below benefit benefits best
better between beyond board body book books both bring brought budget build building business call
called came capital card care carry case cases cause center central centre certain change changed
changes charge check chief child children choice choose city class clear close code collection come
comes coming comment committee common community companies company compare compared complete computer
concern condition conditions conference consider contact contain content context contract control
copy corporate cost costs could council countries country course court cover create created credit
culture current currently customer customers daily data date days deal decade december decision deep
default define degree delivery demand department described design detail details developed
development difference different difficult digital direct direction director discuss discussion
display distribution document documents does doing domestic done down draft drive during each early
earth easy economic economy edit edition education effect effects effort either electronic else
email employee employees employment energy english enough ensure enter entire entry environment
equal equipment error especially europe european even event events ever every everyone everything
evidence exactly example except exchange expect expected experience explain export express external
face fact factor factors facts fair fall family fast feature features february federal feel fell few
field figure figures file files fill final finally finance financial find fire firm first five fixed
floor focus follow followed following food foot force foreign form format former forms forward found
four free friday friend from front full function functions fund funds further future game gave
general generally germany getting give given global goal goes going gone good goods government great
greater green ground group groups growing growth guide half hand hands happen hard have having head
health hear heart held help here high higher highest history hold home hope hour hours house housing
however human hundred idea image images impact import important improve improved include included
includes including income increase increased index indicate individual industrial industry
information inside instead institute insurance interest interests international internet into
introduction investment issue issues item items itself january join journal july june just keep kept
kind know knowledge known labor labour land language large larger largest last late later latest law
laws lead leader leading learn learning least leave left legal less letter letters level levels
library life light like likely limit limited line lines link links list listed little live living
load local location long longer look looking loss lost lower made mail main maintain major make
making management manager many march mark market marketing markets material materials matter maybe
mean meaning means measure measures media medical meet meeting member members message method methods
middle might million mind minute minutes mobile model models modern moment monday money month
monthly months more morning most move much music must name names national natural nature near nearly
necessary need needed needs network never news next night nine none normal north note notes nothing
notice november number numbers object october offer offered office official often once online only
open operation operations opinion option options order orders organization original other others
outside over overall overview owner package page pages paid paper part particular parts party pass
past path payment people percent performance perhaps period person personal phone physical place
plan planning plans plant play please plus point points policy political popular population position
possible post potential power practice present president press pressure previous price prices
primary print private probably problem problems process product production products professional
profile profit program project projects property protection provide provided provides public
published purchase purpose quality quarter question questions quick quickly quite range rate rates
rather reach read reading ready real reason reasons receive received recent recently record records
reduce reference region regional regular related relations release remain remember remove report
reported reports request require required requirements research resource resources response
responsible rest result results return returns review right rights rise rising risk road role room
rule rules safe safety said sale sales same saturday save school science search season second
section sector security seem seems select self sell send senior sense september series serve server
service services session setting settings seven several shall share shared shares sheet short should
show shown side sign similar simple simply since single site size small social software sold
solution some someone something sometimes soon sort source south space special specific staff stage
standard standards start started state statement states station statistics status stay step still
stock stop store story strategy street strong structure student students study style subject such
suggest sunday supply support sure surface survey system systems table take taken takes taking
target task team technical technology tell term terms test tests text than thank that their them
then theory there these they thing things think third this those though thought three through
thursday time times title today together told took tools topic total toward town track trade
training transfer transport travel treatment trend trends trial true trust trying tuesday turn twice
type types under understand union unit united units university until update updated upon upper used
user users uses using usually value values various version very view visit volume wait want water
ways website wednesday week weekly weeks well went were west what when where whether which while
white whole whose wide will window wish with within without women word words work worked workers
working works world worth would write writing written wrong year years yesterday young your
algorithm android apple backup bonus browser button capita carbon chart cloud command compile
connection connections database debug delete device domain download economics editor excel exchange
export exports firefox forecast formula gdp github google growth import imports inflation install
internet java javascript keyboard language linux login machine manual margin memory merge merger
microsoft mysql node output password pension postgresql printer program programming python query
release repository revenue root runtime salary screen script scrum shell source sport sports sql
syntax tax taxes taxation template timeout tutorial unicode update upload vacation variable version
weather web website wikipedia windows wireless
africa america american asia asian australia austria belgium brazil britain british canada china
chinese denmark dutch england finland france french german greece india ireland italian italy japan
japanese korea mexico netherlands norway poland portugal portuguese russia russian spain spanish
sweden swiss switzerland turkey ukraine
"""

COMMON_WORDS = frozenset(_WORDS.split())
